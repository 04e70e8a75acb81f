import {
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
  appendFileSync,
  chmodSync,
  readFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pollUntil } from "@atoll/host";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { rlimits, type GuestSpawn } from "../../src/guest/requests.ts";
import { parseEvent, type WatchEvent } from "../../src/guest/tool-records.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

let dir: string;
let outside: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "atoll-watch-"));
  outside = `${dir}-outside`;
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
  rmSync(outside, { recursive: true, force: true });
});

/** One run of the tool. */
class Watch {
  id: number;
  #guest: NativeGuest;
  #events: WatchEvent[] = [];
  #readBytes = 0;

  private constructor(guest: NativeGuest, path: string, how: string, parts: Partial<GuestSpawn>) {
    this.#guest = guest;
    this.id = guest.spawn(["watch", path, how], { tool: true, ...parts });
  }

  static async start(
    guest: NativeGuest,
    path: string,
    how: "recursive" | "flat" = "recursive",
    parts: Partial<GuestSpawn> = {},
  ): Promise<Watch> {
    const watch = new Watch(guest, path, how, parts);
    await watch.until((events) => events.length > 0);
    const [first] = watch.events();
    if (first?.kind !== "watching") throw new Error(`The first event is ${first?.kind}`);
    return watch;
  }

  events(): WatchEvent[] {
    const { stdout } = this.#guest.stream(this.id);
    while (stdout.byteLength >= this.#readBytes + 4) {
      const length = stdout.readUInt32LE(this.#readBytes);
      const start = this.#readBytes + 4;
      if (stdout.byteLength < start + length) break;
      const event = parseEvent(stdout.subarray(start, start + length));
      this.#events.push(event);
      this.#readBytes = start + length;
      if (event.cursor !== this.#events.length) throw new Error("The cursor does not count events");
    }
    return this.#events;
  }

  /** Returns `kind path` of every event but the first, without repeated lines. */
  lines(): string[] {
    const lines = this.events()
      .slice(1)
      .map(({ kind, path }) => `${kind} ${path}`);
    return lines.filter((line, index) => line !== lines[index - 1]);
  }

  async until(check: (events: WatchEvent[]) => boolean): Promise<void> {
    const found = await pollUntil(() => check(this.events()), { deadlineMs: 120_000 });
    if (!found) throw new Error(`There was no such event: ${this.lines().slice(-20).join(", ")}`);
  }

  untilEvent(kind: WatchEvent["kind"], path: string): Promise<void> {
    return this.until((events) => events.some((event) => event.kind === kind && event.path === path));
  }
}

describe("watch", { timeout: testTimeoutMs }, () => {
  test("reports changes of files, in order", async () => {
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/old`, "");
    const watch = await Watch.start(guest, dir, "flat");
    writeFileSync(`${dir}/new`, "");
    appendFileSync(`${dir}/old`, "x");
    chmodSync(`${dir}/new`, 0o600);
    renameSync(`${dir}/new`, `${dir}/moved`);
    rmSync(`${dir}/moved`);
    await watch.untilEvent("removed", "moved");
    expect(watch.lines()).toEqual([
      "created new",
      "written new",
      "written old",
      "attributes new",
      "moved_away new",
      "moved_here moved",
      "removed moved",
    ]);
    const events = watch.events();
    const [away] = events.filter((event) => event.kind === "moved_away");
    const [here] = events.filter((event) => event.kind === "moved_here");
    expect(away?.cookie).not.toBe(0);
    expect(here?.cookie).toBe(away?.cookie);
  });

  test("a flat watch reports nothing from deeper directories", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/below`);
    const watch = await Watch.start(guest, dir, "flat");
    writeFileSync(`${dir}/below/file`, "");
    mkdirSync(`${dir}/new`);
    writeFileSync(`${dir}/new/file`, "");
    writeFileSync(`${dir}/last`, "");
    await watch.untilEvent("created", "last");
    expect(watch.lines()).not.toContain("created below/file");
    expect(watch.lines()).not.toContain("created new/file");
    expect(watch.lines()).toContain("created new");
  });

  test("a new directory is watched, and what is in it is reported once", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    for (let round = 0; round < 20; round += 1) {
      mkdirSync(`${dir}/${round}/b/c`, { recursive: true });
      writeFileSync(`${dir}/${round}/b/c/file`, "");
    }
    await watch.untilEvent("created", "19/b/c/file");
    const created = watch
      .events()
      .filter((event) => event.kind === "created")
      .map((event) => event.path);
    const expected = Array.from({ length: 20 }, (_, round) =>
      ["", "/b", "/b/c", "/b/c/file"].map((end) => `${round}${end}`),
    );
    expect(created.toSorted()).toEqual(expected.flat().toSorted());
    writeFileSync(`${dir}/7/b/c/later`, "");
    await watch.untilEvent("created", "7/b/c/later");
  });

  test("no event comes twice or is missing when directories are made faster than they are read", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    const script = 'i=0; while [ $i -lt 100 ]; do mkdir -p "$i/b/c/d"; : >"$i/b/c/d/e"; : >"$i/f"; i=$((i+1)); done';
    await guest.shell(script, { cwd: dir });
    const created = (): string[] => watch.events().flatMap(({ kind, path }) => (kind === "created" ? [path] : []));
    await watch.until(() => created().length >= 100 * 6);
    writeFileSync(`${dir}/last`, "");
    await watch.untilEvent("written", "last");
    expect(new Set(created()).size).toBe(100 * 6 + 1);
    expect(created()).toHaveLength(100 * 6 + 1);
  });

  test("a directory that is moved within the tree is still watched, under its new name", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/a/deep/er`, { recursive: true });
    mkdirSync(`${dir}/b`);
    const watch = await Watch.start(guest, dir);
    renameSync(`${dir}/a`, `${dir}/b/c`);
    await watch.untilEvent("moved_here", "b/c");
    writeFileSync(`${dir}/b/c/deep/er/file`, "");
    await watch.untilEvent("written", "b/c/deep/er/file");
    expect(watch.lines().filter((line) => line.startsWith("created"))).toEqual(["created b/c/deep/er/file"]);
  });

  test("a directory moved out is no longer watched, and one moved in is reported with its contents", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/a/deep`, { recursive: true });
    const watch = await Watch.start(guest, dir);
    renameSync(`${dir}/a`, outside);
    await watch.untilEvent("moved_away", "a");
    writeFileSync(`${outside}/deep/silent`, "");
    writeFileSync(`${dir}/mark`, "");
    await watch.untilEvent("written", "mark");
    expect(watch.lines().filter((line) => line.includes("silent"))).toEqual([]);
    renameSync(outside, `${dir}/back`);
    await watch.untilEvent("created", "back/deep/silent");
    writeFileSync(`${dir}/back/deep/heard`, "");
    await watch.untilEvent("written", "back/deep/heard");
  });

  test("the end of the watched path is reported and ends the tool", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    rmSync(dir, { recursive: true });
    const { exit } = await guest.finish(watch.id);
    expect(exit).toMatchObject({ exitCode: 0 });
    expect(watch.events().at(-1)).toMatchObject({ kind: "gone" });
  });

  test("a file can be watched too", async () => {
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/file`, "");
    const watch = await Watch.start(guest, `${dir}/file`);
    appendFileSync(`${dir}/file`, "x");
    await watch.untilEvent("written", "");
    rmSync(`${dir}/file`);
    await guest.finish(watch.id);
    expect(watch.events().at(-1)).toMatchObject({ kind: "gone" });
  });

  test("an overflow of the kernel's queue is reported, and new directories are still watched", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    const { pid } = guest.stream(watch.id);
    if (pid === undefined) throw new Error("It was not started");
    process.kill(pid, "SIGSTOP");
    // The writes alternate between two files, because equal events in a row are merged.
    const queued = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    for (const name of ["file", "other"]) writeFileSync(`${dir}/${name}`, "");
    for (let n = 0; n <= queued / 2; n += 1) for (const name of ["file", "other"]) chmodSync(`${dir}/${name}`, 0o600);
    mkdirSync(`${dir}/unseen`);
    process.kill(pid, "SIGCONT");
    await watch.until((events) => events.some((event) => event.kind === "lost"));
    writeFileSync(`${dir}/unseen/file`, "");
    await watch.untilEvent("created", "unseen/file");
  });

  /** With so few descriptors a deeper tree cannot be searched. */
  const few = { limits: [{ resource: rlimits.NOFILE, soft: 12, hard: 12 }] };
  const deep = Array.from({ length: 20 }, (_, n) => n).join("/");
  const losses = (watch: Watch): number => watch.events().filter(({ kind }) => kind === "lost").length;

  test("a directory that cannot be searched is reported each time", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir, "recursive", few);
    for (const round of [1, 2, 3]) {
      mkdirSync(`${outside}/${deep}`, { recursive: true });
      renameSync(outside, `${dir}/${round}`);
      await watch.until(() => losses(watch) === round);
    }
  });

  test("a directory that cannot be searched at the start is reported after watching has begun", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/${deep}`, { recursive: true });
    const watch = await Watch.start(guest, dir, "recursive", few);
    await watch.until(() => losses(watch) === 1);
    expect(watch.events().map(({ kind }) => kind)).toEqual(["watching", "lost"]);
  });

  test("a file with too long a path is reported as lost, when it is found and when it changes", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    const down = "import os\nfor i in range(20): os.makedirs('d' * 200, exist_ok=True); os.chdir('d' * 200)\n";
    const write = "open('f' * 250, 'w').close()";
    mkdirSync(outside);
    await guest.run(["python3", "-c", down + write], { cwd: outside });
    renameSync(outside, `${dir}/long`);
    await watch.until(() => losses(watch) === 1);
    await guest.run(["python3", "-c", down + write], { cwd: `${dir}/long` });
    // A loss is reported once per round: on a busy machine, opening and closing the file are two rounds.
    await watch.until(() => losses(watch) >= 2);
    // Other programs cannot remove a file whose path is too long.
    await guest.run(["remove", `${dir}/long`, "recursive"], { tool: true });
  });

  test("a missing path is an error", async () => {
    await using guest = await NativeGuest.start();
    expect((await guest.run(["watch", `${dir}/missing`, "flat"], { tool: true })).exit).toMatchObject({ exitCode: 2 });
  });

  test("a host that goes away loses no event", async () => {
    await using guest = await NativeGuest.start();
    const watch = await Watch.start(guest, dir);
    await guest.hello();
    for (let n = 0; n < 100; n += 1) writeFileSync(`${dir}/${n}`, "");
    guest.sendPosition("ATTACH", watch.id, guest.stream(watch.id).at);
    await watch.untilEvent("written", "99");
    expect(watch.lines().filter((line) => line.startsWith("created"))).toHaveLength(100);
  });
});
