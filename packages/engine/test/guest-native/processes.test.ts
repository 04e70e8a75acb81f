import { beforeAll, describe, expect, test } from "vitest";
import { protocolConstants } from "../../src/guest/frames.ts";
import type { GuestSpawn } from "../../src/guest/requests.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { withTimeToStart } from "../support/time-to-start.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import type { StreamLog } from "./guest-stream-log.ts";
import { NativeGuest, ownUser } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const isRoot = ownUser === "0";

describe("how a process begins", { timeout: testTimeoutMs }, () => {
  test("the environment is the given one, completed with the user's", async () => {
    await using guest = await NativeGuest.start();
    const { stdout } = await guest.run(["/usr/bin/env"], {
      env: { HOME: "/elsewhere", EMPTY: "", ATOLL_STREAM: "666" },
    });
    const lines = stdout.toString().trim().split("\n").toSorted();
    expect(lines.map((line) => line.split("=")[0])).toEqual(
      ["ATOLL_STREAM", "EMPTY", "HOME", "LOGNAME", "PATH", "SHELL", "USER"].toSorted(),
    );
    expect(lines).toContain("HOME=/elsewhere");
    expect(lines).toContain("ATOLL_STREAM=1");
  });

  test("the process leads a session and a group of its own, with nothing open but its stdio", async () => {
    await using guest = await NativeGuest.start();
    const { stdout, pid } = await guest.shell("ps -o pid=,pgid=,sid= -p $$; ls -l /proc/self/fd | wc -l");
    const [ids = "", descriptors] = stdout.toString().trim().split("\n");
    expect(ids.trim().split(/\s+/)).toEqual([String(pid), String(pid), String(pid)]);
    // The output has the heading, three descriptors, and the directory that is listed.
    expect(descriptors).toBe("5");
  });

  test("signals are as a program expects them, whatever the guest does with its own", async () => {
    await using guest = await NativeGuest.start();
    const { stdout } = await guest.run(["/bin/cat", "/proc/self/status"]);
    expect(stdout.toString().match(/^Sig(Blk|Ign|Cgt):\t0000000000000000$/gm)).toHaveLength(3);
  });

  test("arguments and directory arrive as they were given", async () => {
    await using guest = await NativeGuest.start();
    const strange = ["", " ", "a\nb", "ü", "$HOME", "*", "-n", "'\"\\"];
    const { stdout } = await guest.run(["/bin/sh", "-c", 'pwd; printf "[%s]" "$@"', "sh", ...strange], { cwd: "/usr" });
    expect(stdout.toString()).toBe(`/usr\n${strange.map((text) => `[${text}]`).join("")}`);
  });

  test("a program is looked for in the PATH that it will have", async () => {
    await using guest = await NativeGuest.start();
    expect((await guest.run(["true"], { env: { PATH: "/nowhere::/bin" } })).exit).toMatchObject({ exitCode: 0 });
    const lost = guest.spawn(["true"], { env: { PATH: "/nowhere" } });
    guest.stream(lost);
    expect((await guest.finish(lost)).failed).toMatchObject({ errno: 2, what: "exec true" });
  });

  test.for([
    [["/nowhere/program"], {}, 2, "exec /nowhere/program"],
    [["/etc/passwd"], {}, 13, "exec /etc/passwd"],
    [["/usr"], {}, 13, "exec /usr"],
    [["true"], { cwd: "/nowhere" }, 2, "change to directory /nowhere"],
    [["true"], { cwd: "/etc/passwd" }, 20, "change to directory /etc/passwd"],
    [["true"], { user: "nobody2" }, 2, "find user nobody2"],
    [["true"], { user: "" }, 2, "find user "],
    [["true"], { user: "4294967295" }, 2, "find user 4294967295"],
    [["true"], { user: `${ownUser}:nogroup2` }, 2, `find user ${ownUser}:nogroup2`],
    [["true"], { limits: [{ resource: 16, soft: 1, hard: 1 }] }, 22, "understand the request"],
    [["true"], { limits: [{ resource: 7, soft: 2, hard: 1 }] }, 22, "set limit 7"],
  ] satisfies [string[], Partial<GuestSpawn>, number, string][])(
    "%j with %j fails with errno %i: cannot %s",
    async ([argv, parts, errno, what]) => {
      await using guest = await NativeGuest.start();
      const id = guest.spawn(argv, parts);
      guest.stream(id);
      expect((await guest.finish(id)).failed).toMatchObject({ errno, what });
      expect(await guest.ask("COUNT")).toMatchObject({ processes: 0, streams: 0 });
    },
  );

  test("limits are set", async () => {
    await using guest = await NativeGuest.start();
    const { stdout } = await guest.shell("ulimit -Sn; ulimit -Hn; ulimit -Sc", {
      limits: [
        { resource: 7, soft: 55, hard: 66 },
        { resource: 4, soft: 0, hard: 0 },
      ],
    });
    expect(stdout.toString()).toBe("55\n66\n0\n");
  });

  test("a user is a name or a number, with its groups", async (context) => {
    context.skip(!isRoot, "only root can become another user");
    await using guest = await NativeGuest.start();
    const id = async (user: string): Promise<string> =>
      (await guest.shell("id -u; id -g; id -G; echo $HOME $USER", { user })).stdout.toString();
    expect(await id("nobody")).toMatch(/^65534\n65534\n65534\n\S+ nobody\n$/);
    expect(await id("65534")).toMatch(/^65534\n65534\n65534\n\S+ nobody\n$/);
    expect(await id("12345")).toBe("12345\n12345\n12345\n/ 12345\n");
    expect(await id("12345:54321")).toBe("12345\n54321\n54321\n/ 12345\n");
    expect(await id("nobody:0")).toMatch(/^65534\n0\n0\n/);
  });

  test("no process gets the guest's own capabilities, not even one of root", async (context) => {
    context.skip(!isRoot, "only root has capabilities to withhold");
    await using guest = await NativeGuest.start();
    const { stdout } = await guest.run(["/bin/grep", "-E", "^Cap(Prm|Eff|Bnd)", "/proc/self/status"]);
    const sets = [...stdout.toString().matchAll(/:\s*([0-9a-f]+)/g)].map(([, digits]) => BigInt(`0x${digits}`));
    const withheld = (1n << 21n) | (1n << 24n);
    expect(sets).toHaveLength(3);
    for (const set of sets) expect(set & withheld).toBe(0n);
  });
});

describe("how a process ends", { timeout: testTimeoutMs }, () => {
  test("every exit code is reported as it is", async () => {
    await using guest = await NativeGuest.start();
    const codes = Array.from({ length: 256 }, (_, code) => code);
    const ends = await Promise.all(codes.map((code) => guest.shell(`exit ${code}`)));
    expect(ends.map(({ exit }) => exit?.exitCode)).toEqual(codes);
  });

  test("every signal that kills is reported as it is", async () => {
    await using guest = await NativeGuest.start();
    const killing = [1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    const ends = await Promise.all(killing.map((signal) => guest.shell(`kill -${signal} $$; sleep 5`)));
    expect(ends.map(({ exit }) => exit?.exitCode)).toEqual(killing.map(() => null));
    expect(new Set(ends.map(({ exit }) => exit?.signal)).size).toBe(killing.length);
  });

  test("many processes run at once without disturbing each other", async () => {
    await using guest = await NativeGuest.start();
    const all = Array.from({ length: 100 }, (_, n) => guest.shell(`echo ${n}; sleep 0.1; echo ${n} >&2; exit ${n}`));
    for (const [n, { stdout, stderr, exit }] of (await Promise.all(all)).entries()) {
      expect([stdout.toString(), stderr.toString(), exit?.exitCode]).toEqual([`${n}\n`, `${n}\n`, n]);
    }
    expect(await guest.ask("COUNT")).toMatchObject({ streams: 0, processes: 0 });
  });

  test("orphans are reaped and leave nothing behind", async () => {
    await using guest = await NativeGuest.start();
    await guest.shell("for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 &) ; done");
    await expect.poll(() => guest.ask("COUNT")).toMatchObject({ processes: 0, streams: 0 });
  });

  test("no more streams than the limit, and one more when one is gone", async () => {
    await using guest = await NativeGuest.start();
    const ids: number[] = [];
    for (let n = 0; n < protocolConstants.MAX_STREAMS; n += 1) ids.push(guest.spawn(["/bin/true"]));
    await guest.until(() => ids.every((id) => guest.stream(id).isOver));
    const extra = guest.spawn(["/bin/true"]);
    guest.stream(extra);
    expect((await guest.finish(extra)).failed).toMatchObject({ errno: 11 });
    expect(await guest.hello()).toHaveLength(protocolConstants.MAX_STREAMS);
    for (const id of ids) guest.send("RELEASE", id);
    expect((await guest.run(["/bin/true"])).exit).toMatchObject({ exitCode: 0 });
    expect(guest.descriptorCount).toBeLessThan(16);
  });
});

describe("signals and limits", { timeout: testTimeoutMs }, () => {
  test("SIGNAL reaches the whole group", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn([
      "/bin/sh",
      "-c",
      "trap 'echo outer; exit 7' TERM; (sleep 60 & trap 'echo inner; exit' TERM; echo down; wait) & echo up; wait",
    ]);
    await guest.until(() => ["up", "down"].every((word) => guest.stream(id).stdout.includes(word)));
    guest.signal(id, 15);
    const { stdout, exit } = await guest.finish(id);
    expect(stdout.toString()).toContain("outer");
    expect(stdout.toString()).toContain("inner");
    expect(exit).toMatchObject({ exitCode: 7 });
  });

  test("after SIGKILL the EXIT waits for the whole group", async () => {
    await using guest = await NativeGuest.start();
    // `tail` keeps all of it in memory, and the kernel needs a while to free that.
    const id = guest.spawn(["/bin/sh", "-c", "{ head -c 200000000 /dev/zero; echo up >&2; sleep 60; } | tail -n 1"]);
    await guest.until(() => guest.stream(id).stderr.includes("up"));
    guest.signal(id, 9);
    expect((await guest.finish(id)).exit).toMatchObject({ signal: "SIGKILL", exitCode: null });
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 0 });
  });

  test("scope 1 finds what left the group, by its mark, its session or its parents", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn([
      "/bin/sh",
      "-c",
      [
        "setsid sh -c 'sleep 61 & echo marked; sleep 61' &",
        "env -i setsid sh -c 'echo below; exec sleep 62' &",
        "(setsid sh -c 'echo orphan; exec sleep 63' &)",
        "wait",
      ].join("\n"),
    ]);
    const bystander = guest.spawn(["/bin/sleep", "64"]);
    const isUp = (word: string): boolean => guest.stream(id).stdout.includes(word);
    await guest.until(() => ["marked", "below", "orphan"].every(isUp));
    guest.signal(id, 9, 1);
    await guest.finish(id);
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 1, streams: 1 });
    expect(guest.stream(bystander).exit).toBeUndefined();
  });

  test("a time limit kills, and the EXIT says that it was reached", async () => {
    await using guest = await NativeGuest.start();
    const { exit } = await guest.shell("setsid sleep 60 & sleep 60", { timeoutMs: 200 });
    expect(exit).toMatchObject({ signal: "SIGKILL", timedOut: true });
    expect(await guest.ask("COUNT")).toMatchObject({ processes: 0 });
  });

  test("with a grace there is a SIGTERM first", async () => {
    await using guest = await NativeGuest.start();
    const endOf = (script: string, graceMs: number): Promise<StreamLog> =>
      withTimeToStart(
        (timeoutMs) => guest.shell(script, { timeoutMs, graceMs }),
        ({ stdout }) => stdout.includes("up"),
      );
    const polite = endOf("trap 'exit 9' TERM; echo up; sleep 60 & wait", 60_000);
    const stubborn = endOf("trap '' TERM; echo up; while :; do sleep 0.05; done", 300);
    expect((await polite).exit).toMatchObject({ exitCode: 9, timedOut: true });
    expect((await stubborn).exit).toMatchObject({ signal: "SIGKILL", timedOut: true });
  });

  test("a process that ends in time is not touched, nor are those after it", async () => {
    await using guest = await NativeGuest.start();
    const { exit } = await guest.shell("sleep 0.1", { timeoutMs: 20_000 });
    expect(exit).toMatchObject({ exitCode: 0, timedOut: false });
  });

  test("signals that do not exist do nothing", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "read line; exit 8"], { stdin: true });
    for (const signal of [0, 65, 0xffff_ffff]) guest.signal(id, signal, 1);
    guest.send("SIGNAL", id, new PayloadWriter().u32(0).u32(0xffff_ffff).finish());
    guest.sendPosition("STDIN_EOF", id, 0);
    expect((await guest.finish(id)).exit).toMatchObject({ exitCode: 8 });
  });
});
