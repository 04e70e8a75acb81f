import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { neverNs } from "../../src/guest/guest-nodes.ts";
import { encodeCount, encodeNodes } from "../../src/guest/requests.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const noCap = 0xffff_ffff_ffff_ffffn;
const u64 = (value: number | bigint): Buffer => new PayloadWriter().u64(value).finish();

describe("requests", { timeout: testTimeoutMs }, () => {
  test("PING brings its bytes back", async () => {
    await using guest = await NativeGuest.start();
    const bytes = randomBytes(1024);
    expect(await guest.ask("PING", bytes)).toMatchObject({ type: "pong", payload: bytes });
  });

  test("while its answers are not read the guest takes no requests, and no answer is lost", async () => {
    await using guest = await NativeGuest.start();
    const pings = 10_000;
    guest.pauseReading();
    for (let id = 1; id <= pings; id += 1) guest.send("PING", id, Buffer.alloc(1000));
    let unsent = guest.unsentBytes;
    let unchanged = 0;
    const standsStill = (): boolean => {
      unchanged = guest.unsentBytes === unsent ? unchanged + 1 : 0;
      unsent = guest.unsentBytes;
      return unchanged >= 5;
    };
    await expect.poll(standsStill, { timeout: testTimeoutMs }).toBe(true);
    expect(unsent).toBeGreaterThan((pings * 1000) / 2);
    guest.resumeReading();
    await guest.until(() => guest.answers.size === pings);
  });

  test("COUNT returns processes, streams and their buffered bytes", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    // This is more than the window and the pipe have room for together, so both processes exist for as long as nothing
    // is acknowledged.
    const id = guest.spawn(["/bin/sh", "-c", "head -c 10000000 /dev/zero; exit 0"], { windowBytes: 262_144 });
    await guest.until(() => guest.stream(id).at === 262_144);
    const counted = await guest.ask("COUNT");
    expect(counted).toMatchObject({ processes: 2, streams: 1 });
    expect(counted.type === "counted" && counted.bufferedBytes).toBeGreaterThanOrEqual(262_144);
  });

  test("COUNT leaves out the given streams' processes and what these left behind", async () => {
    await using guest = await NativeGuest.start();
    const [one, other] = ["echo up; read line", "setsid sleep 60 >/dev/null 2>&1 & echo up $!; read line"].map((line) =>
      guest.spawn(["/bin/sh", "-c", line], { stdin: true }),
    ) as [number, number];
    for (const id of [one, other]) await guest.until(() => guest.stream(id).stdout.includes("up"));
    const count = (...without: number[]): Promise<unknown> => guest.ask("COUNT", encodeCount(without));
    expect(await count()).toMatchObject({ processes: 3 });
    expect(await count(one, 4711)).toMatchObject({ processes: 2 });
    expect(await count(other)).toMatchObject({ processes: 1 });
    guest.sendPosition("STDIN_EOF", other, 0);
    await guest.until(() => guest.stream(other).exit !== undefined);
    expect(await count()).toMatchObject({ processes: 2 });
    expect(await count(one, other)).toMatchObject({ processes: 0 });
    expect(await guest.ask("COUNT", Buffer.alloc(3))).toMatchObject({ errno: constants.errno.EBADMSG });
    process.kill(Number(/up (\d+)/.exec(guest.stream(other).stdout.toString())?.[1]), "SIGKILL");
  });

  test("COUNT counts threads as the kernel does, and for each user apart", async () => {
    await using guest = await NativeGuest.start();
    const threads = "import threading\nfor _ in range(5): threading.Thread(target=input).start()\nprint('up')\ninput()";
    const python = guest.spawn(["/usr/bin/python3", "-c", threads], { stdin: true, user: "1" });
    await guest.until(() => guest.stream(python).stdout.includes("up"));
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 6, ofOneUser: 6 });
    const ours = Array.from({ length: 7 }, () => guest.spawn(["/bin/cat"], { stdin: true }));
    await guest.until(() => ours.every((id) => guest.stream(id).pid !== undefined));
    // The guest is one of root's processes as well.
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 13, ofOneUser: 8 });
  });

  test("COUNT leaves out what such a process has not reaped", async () => {
    await using guest = await NativeGuest.start();
    // A shell would reap the child, so the child ends when the shell has become another program.
    const script = "exec 3<&0; head -c 1 <&3 >/dev/null & echo up $!; exec sleep 60";
    const id = guest.spawn(["/bin/sh", "-c", script], { stdin: true });
    const stream = guest.stream(id);
    await guest.until(() => stream.stdout.includes("\n") && stream.pid !== undefined);
    await expect.poll(() => readFileSync(`/proc/${stream.pid}/comm`, "utf8")).toBe("sleep\n");
    guest.stdin(id, 0, "x");
    const pid = /up (\d+)/.exec(stream.stdout.toString())?.[1];
    await expect.poll(() => readFileSync(`/proc/${pid}/stat`, "utf8")).toContain(") Z ");
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 2 });
    expect(await guest.ask("COUNT", encodeCount([id]))).toMatchObject({ processes: 0 });
  });

  test("HOLDERS names the processes that have a deleted file open", async () => {
    await using guest = await NativeGuest.start();
    const path = join(tmpdir(), `atoll-held-${process.pid}`);
    const ask = (): ReturnType<typeof guest.ask> => guest.ask("HOLDERS", new PayloadWriter().str(path).finish());
    const id = guest.spawn(["/bin/bash", "-c", `exec 5>'${path}'; rm '${path}'; echo up; read line`], { stdin: true });
    await guest.until(() => guest.stream(id).stdout.includes("up"));
    const { pid } = guest.stream(id);
    const answer = await ask();
    expect(answer).toMatchObject({ holders: [{ pid, streamId: id }] });
    expect(answer.type === "heldBy" && answer.holders[0]?.command).toContain("exec 5>");
    guest.sendPosition("STDIN_EOF", id, 0);
    await guest.finish(id);
    expect(await ask()).toMatchObject({ holders: [] });
  });

  test("END_HOLDERS kills and names the processes that have a deleted file open, and no others", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-ended-"));
    const path = join(dir, "file");
    const start = async (script: string): Promise<number> => {
      const id = guest.spawn(["/bin/bash", "-c", `cd '${dir}'; ${script}; echo up; read line; echo read`], {
        stdin: true,
      });
      await guest.until(() => guest.stream(id).stdout.includes("up"));
      return id;
    };
    try {
      const holding = [
        await start("exec 5>file; rm file"),
        await start("exec 5>file; echo >new; mv new file; rm file"),
        await start("mkdir file; cd file; rmdir ../file"),
        // The file is removed once the program runs: until then the background shell still has to find it.
        await start("cp /bin/sleep file; ./file 60 <&0 & until [ /proc/$!/exe -ef file ]; do :; done; rm file"),
      ];
      // A newer file of the same name, and one whose real name ends like the mark of deleted files, can be saved.
      const others = [await start("exec 5>file"), await start("exec 5>'file (deleted)'"), await start("true")];
      const answer = await guest.ask("END_HOLDERS", new PayloadWriter().str(path).finish());
      const ended = answer.type === "heldBy" ? answer.holders.map(({ streamId }) => streamId) : [];
      expect(new Set(ended)).toEqual(new Set(holding));
      for (const id of holding.slice(0, 3)) expect((await guest.finish(id)).exit).toMatchObject({ signal: "SIGKILL" });
      for (const id of others) {
        guest.sendPosition("STDIN_EOF", id, 0);
        expect((await guest.finish(id)).exit).toMatchObject({ exitCode: 0 });
      }
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("NODES lists the pipes and sockets of directories, but not of an unchanged one", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-nodes-"));
    try {
      execFileSync("/bin/sh", ["-c", "mkdir d e && mkfifo -m 640 d/pipe e/pipe && echo >d/file"], { cwd: dir });
      const path = (name: string): Buffer => Buffer.from(`${dir.slice(1)}/${name}`);
      const since = statSync(join(dir, "e"), { bigint: true }).ctimeNs;
      const places = [
        { path: path("d"), emptyAtNs: neverNs },
        { path: path("d/file"), emptyAtNs: neverNs },
        { path: path("none"), emptyAtNs: neverNs },
        { path: path("e"), emptyAtNs: since },
      ];
      const answer = await guest.ask("NODES", encodeNodes("in", places));
      const entries = answer.type === "nodes" ? answer.entries : [];
      expect(entries.map((entry) => entry.toString("latin1", 45, entry.byteLength - 4))).toEqual([
        path("d/pipe").toString(),
      ]);
      expect([entries[0]?.toString("latin1", 0, 1), entries[0]?.readUInt32LE(1)]).toEqual(["p", 0o640]);
      // Setting its times to the same values is a change too.
      expect(await guest.ask("NODES", encodeNodes("synced", places))).toMatchObject({ entries });
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("NODES leaves directories with many files, and answers that do not fit, to a tool", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-nodes-"));
    const ask = (): ReturnType<typeof guest.ask> =>
      guest.ask("NODES", encodeNodes("in", [{ path: Buffer.from(dir.slice(1)), emptyAtNs: neverNs }]));
    try {
      execFileSync("/bin/sh", ["-c", "seq 1 4096 | xargs touch"], { cwd: dir });
      expect(await ask()).toMatchObject({ type: "nodes", entries: [] });
      execFileSync("/bin/sh", ["-c", "touch one-more"], { cwd: dir });
      expect(await ask()).toMatchObject({ type: "failed", errno: constants.errno.E2BIG });
      execFileSync("/bin/bash", ["-c", "rm * && mkfifo {1..1500}"], { cwd: dir });
      expect(await ask()).toMatchObject({ type: "failed", errno: constants.errno.E2BIG });
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test.for([
    ["more directories than it has", new PayloadWriter().u32(0).u32(2).u64(0).str("tmp").finish()],
    ["fewer than it has", new PayloadWriter().u32(0).u32(0).u64(0).str("tmp").finish()],
    ["flags that do not exist", new PayloadWriter().u32(2).u32(0).finish()],
    ["a path that no kernel takes", new PayloadWriter().u32(0).u32(1).u64(0).str("x".repeat(8001)).finish()],
    ["nothing", Buffer.alloc(0)],
  ] as const)("NODES with %s is refused", async ([, payload]) => {
    await using guest = await NativeGuest.start();
    expect(await guest.ask("NODES", payload)).toMatchObject({ type: "failed", errno: constants.errno.EBADMSG });
  });

  test("RESTORED without a host name changes nothing", async () => {
    await using guest = await NativeGuest.start();
    const payload = new PayloadWriter().u64(0).bytes(randomBytes(32)).str("").finish();
    expect(await guest.ask("RESTORED", payload)).toMatchObject({ type: "done" });
  });
});

describe("PREPARE", { timeout: testTimeoutMs }, () => {
  test("after READY nothing comes until the next greeting, and nothing is lost", async () => {
    await using guest = await NativeGuest.start();
    const progress = join(tmpdir(), `atoll-progress-${process.pid}`);
    const stop = `${progress}-stop`;
    const count = [
      "i=0",
      `until [ -e '${stop}' ]; do echo $i; echo $i >'${progress}'; i=$((i+1)); sleep 0.01; done`,
      `rm '${stop}'`,
    ].join("; ");
    const id = guest.spawn(["/bin/sh", "-c", count]);
    const stream = guest.stream(id);
    await guest.until(() => stream.at > 10);
    expect(await guest.ask("PREPARE")).toMatchObject({ type: "ready" });
    const { receivedBytes } = guest;
    guest.send("PING", 999);
    const counted = (): number => Number(readFileSync(progress, "utf8"));
    const before = counted();
    await expect.poll(counted, { timeout: testTimeoutMs }).toBeGreaterThan(before + 10);
    expect(guest.receivedBytes).toBe(receivedBytes);
    const [entry] = await guest.hello();
    expect(entry?.producedAt).toBeGreaterThan(stream.at);
    expect(guest.answers.has(999)).toBe(false);
    guest.sendPosition("ATTACH", id, stream.at);
    writeFileSync(stop, "");
    await guest.finish(id);
    rmSync(progress);
    const lines = stream.stdout.toString().split("\n").length - 1;
    expect(stream.stdout.toString()).toBe(Array.from({ length: lines }, (_, line) => `${line}\n`).join(""));
  });

  test("what was queued before is written before READY", async () => {
    await using guest = await NativeGuest.start();
    guest.pauseReading();
    for (let id = 1; id <= 100; id += 1) guest.send("PING", id, Buffer.alloc(1000));
    guest.send("PREPARE", 200);
    guest.resumeReading();
    await guest.until(() => guest.answers.has(200));
    expect(guest.answers.size).toBe(101);
  });
});

describe("CAP", { timeout: testTimeoutMs }, () => {
  const write = (path: string, bytes: number): string => `head -c ${bytes} /dev/zero >'${path}'; wc -c <'${path}'`;

  test("applies to running and later processes, until it is lifted", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-cap-"));
    try {
      const running = guest.spawn(
        ["/bin/sh", "-c", `read a; ${write(`${dir}/a`, 9000)}; read b; ${write(`${dir}/a`, 9000)}`],
        {
          stdin: true,
        },
      );
      await guest.until(() => guest.stream(running).pid !== undefined);
      expect(await guest.ask("CAP", u64(5000))).toMatchObject({ type: "done" });
      guest.stdin(running, 0, "go\n");
      await guest.until(() => guest.stream(running).stdout.includes("5000"));
      expect((await guest.shell(write(`${dir}/b`, 9000))).stdout.toString()).toBe("5000\n");
      expect(await guest.ask("CAP", u64(noCap))).toMatchObject({ type: "done" });
      guest.stdin(running, 3, "go\n");
      expect((await guest.finish(running)).stdout.toString()).toBe("5000\n9000\n");
      expect((await guest.shell(write(`${dir}/c`, 9000))).stdout.toString()).toBe("9000\n");
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("does not widen the limit that a process was given", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-cap-"));
    try {
      const limits = [{ resource: 1, soft: 7000, hard: 7000 }];
      const id = guest.spawn(["/bin/sh", "-c", `read a; ${write(`${dir}/a`, 9000)}`], { stdin: true, limits });
      await guest.until(() => guest.stream(id).pid !== undefined);
      await guest.ask("CAP", u64(5000));
      await guest.ask("CAP", u64(noCap));
      guest.stdin(id, 0, "go\n");
      expect((await guest.finish(id)).stdout.toString()).toBe("7000\n");
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test("catches up with a process that raises its own limit", async () => {
    await using guest = await NativeGuest.start();
    const dir = mkdtempSync(join(tmpdir(), "atoll-cap-"));
    try {
      await guest.ask("CAP", u64(5000));
      const { stdout } = await guest.shell(
        `ulimit -Sf unlimited; until [ "$(ulimit -Hf)" != unlimited ]; do sleep 0.05; done; ${write(`${dir}/a`, 9000)}`,
      );
      expect(stdout.toString()).toBe("5000\n");
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});
