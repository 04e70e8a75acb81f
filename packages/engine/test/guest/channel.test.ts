import { constants } from "node:os";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GuestChannel } from "../../src/guest/channel.ts";
import { PayloadReader } from "../../src/guest/wire.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";
import { spawnOf } from "../support/spawn-request.ts";

const never = new AbortController().signal;
let guest: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
});

describe("the greeting", () => {
  test("a host that made the FIFOs says hello with its version, a nonce and the time", async () => {
    const beforeMs = Date.now();
    const opened = GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: never });
    const hello = await guest.greet();
    (await opened).close();
    const reader = new PayloadReader(hello.payload);
    expect(reader.u32()).toBe(1);
    expect(new Set(reader.bytes(16)).size).toBeGreaterThan(1);
    expect(Number(reader.bigU64() / 1_000_000n)).toBeGreaterThanOrEqual(beforeMs);
    reader.end();
    expect(guest.skippedBytes).toBe(0);
  });

  test("each host has a nonce of its own", async () => {
    const nonces: Buffer[] = [];
    for (let host = 0; host < 2; host += 1) {
      const opened = GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: never });
      nonces.push((await guest.greet()).payload.subarray(4, 20));
      (await opened).close();
    }
    expect(nonces[0]).not.toEqual(nonces[1]);
  });

  test("a guest of another version is refused", async () => {
    const opened = caught(GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: never }));
    await guest.greet({ version: 2 });
    const error = await opened;
    expect(isSandboxError(error, "unsupported") && error.message).toContain("version 2");
  });

  test("a guest that does not answer is waited for until the signal aborts", async () => {
    const controller = new AbortController();
    const opened = caught(GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: controller.signal }));
    await guest.next("HELLO");
    const reason = new Error("no answer in time");
    controller.abort(reason);
    expect(await opened).toBe(reason);
  });

  test("a sandbox that is gone is noticed at once", async () => {
    guest.die();
    const opened = GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: never });
    await expect(opened).rejects.toMatchObject({ code: "ENXIO" });
  });

  test("a guest that dies instead of answering ends the wait", async () => {
    const opened = caught(GuestChannel.open({ paths: guest.paths, isFirstHost: true, signal: never }));
    await guest.next("HELLO");
    guest.die();
    expect(isSandboxError(await opened, "sandbox_ended")).toBe(true);
  });
});

describe("a process", () => {
  test("it is started with everything that was requested", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(
      spawnOf(["printf", "ä", ""], {
        env: { A: "1", B: "x=y" },
        cwd: "/work",
        user: "root:adm",
        pty: { rows: 24, cols: 80 },
        timeoutMs: 5_000,
        graceMs: 100,
        windowBytes: 8192,
        limits: [{ resource: 6, soft: 10, hard: 20 }],
      }),
    );
    const { id, payload } = await guest.next("SPAWN");
    await guest.send(guestFrame.started(id, 4711));
    expect(readSpawn(payload)).toEqual({
      flags: 3,
      windowBytes: 8192,
      timeoutMs: 5_000,
      graceMs: 100,
      rows: 24,
      cols: 80,
      user: "root:adm",
      cwd: "/work",
      limits: [{ resource: 6, soft: 10, hard: 20 }],
      argv: ["printf", "ä", ""],
      env: ["A=1", "B=x=y"],
    });
    const process = await spawned;
    expect(process.pid).toBe(4711);
    expect(process.streamId).toBe(id);
    channel.close();
  });

  test("output, exit and usage are reported, and the guest may forget the process", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["true"]));
    const id = await guest.start();
    await guest.send(
      guestFrame.output(id, 0, 0, 1, "out"),
      guestFrame.output(id, 3, 0, 2, "err"),
      guestFrame.end(id, 6),
      guestFrame.exit(id, { code: 3, at: 6, userUs: 2000, systemUs: 1000, peakKib: 10 }),
    );
    const process = await spawned;
    const seen: string[] = [];
    for await (const { stream, data } of process) seen.push(`${stream}: ${data.toString()}`);
    expect(seen).toEqual(["stdout: out", "stderr: err"]);
    expect(await process.wait()).toEqual({
      exitCode: 3,
      signal: null,
      timedOut: false,
      outOfMemory: false,
      cpuUserMs: 2,
      cpuSystemMs: 1,
      peakMemoryBytes: 10_240,
    });
    expect(await guest.next("RELEASE")).toMatchObject({ id });
    channel.close();
  });

  test("a kept process is remembered until it is released", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["true"]), { keep: true });
    const id = await guest.start();
    await guest.send(guestFrame.exit(id));
    const process = await spawned;
    await process.wait();
    await guest.hearsOnlyPing(channel);
    process.release();
    expect(await guest.next("RELEASE")).toMatchObject({ id });
    channel.close();
  });

  test("one that cannot be started says why, and the channel goes on", async () => {
    const channel = await openChannel(guest);
    const spawned = caught(channel.spawn(spawnOf(["nothing"])));
    const { id } = await guest.next("SPAWN");
    await guest.send(guestFrame.failed(id, constants.errno.ENOENT, "exec nothing"));
    const error = await spawned;
    expect(isSandboxError(error, "spawn_failed")).toBe(true);
    expect(error).toMatchObject({
      message: "Cannot exec nothing: no such file or directory",
      details: { errno: "ENOENT", what: "exec nothing" },
    });
    await guest.answersPing(channel);
    channel.close();
  });

  test("an id that a predecessor's process still has is not tried again", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["true"]));
    const { id } = await guest.next("SPAWN");
    await guest.send(guestFrame.failed(id, constants.errno.EEXIST, `use stream id ${id}`));
    const second = await guest.start(7);
    expect(second).not.toBe(id);
    expect((await spawned).pid).toBe(7);
    channel.close();
  });

  test("one whose arguments do not fit a frame is refused before anything is sent", async () => {
    const channel = await openChannel(guest);
    const error = await caught(channel.spawn(spawnOf(["echo", "x".repeat(300_000)])));
    expect(isSandboxError(error, "invalid_argument") && error.details).toMatchObject({ allowed: 262_144 });
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("input reaches it in order, and its end", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["cat"], { stdin: true }));
    await guest.start();
    const process = await spawned;
    await process.writeStdin("hello ");
    await process.writeStdin(Buffer.from("world"));
    await process.closeStdin();
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("hello ");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("world");
    expect((await guest.next("STDIN_EOF")).payload.readBigUInt64LE()).toBe(11n);
    channel.close();
  });

  test("input to one that was started without stdin is refused", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["cat"]));
    await guest.start();
    const error = await caught((await spawned).writeStdin("x"));
    expect(isSandboxError(error, "invalid_state") && error.message).toContain("without stdin");
    channel.close();
  });

  test("signals and sizes reach it while it lives", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["sh"], { pty: { rows: 1, cols: 1 } }));
    const id = await guest.start();
    const process = await spawned;
    await process.kill();
    expect([...(await guest.next("SIGNAL")).payload]).toEqual([15, 0, 0, 0, 0, 0, 0, 0]);
    await process.kill("SIGKILL");
    expect([...(await guest.next("SIGNAL")).payload]).toEqual([9, 0, 0, 0, 1, 0, 0, 0]);
    await process.resize({ rows: 50, cols: 132 });
    expect([...(await guest.next("RESIZE")).payload]).toEqual([50, 0, 132, 0]);
    await guest.send(guestFrame.exit(id, { kind: 1, code: 9 }));
    expect(await process.wait()).toMatchObject({ exitCode: null, signal: "SIGKILL" });
    await guest.next("RELEASE");
    await process.kill();
    await process.resize({ rows: 1, cols: 1 });
    await guest.hearsOnlyPing(channel);
    channel.close();
  });
});

describe("an abort", () => {
  test("before the start nothing is sent", async () => {
    const channel = await openChannel(guest);
    const reason = new Error("changed my mind");
    expect(await caught(channel.spawn(spawnOf(["true"]), { signal: AbortSignal.abort(reason) }))).toBe(reason);
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("while the guest is silent rejects at once, and nothing is left", async () => {
    const channel = await openChannel(guest);
    const controller = new AbortController();
    const spawned = caught(channel.spawn(spawnOf(["true"]), { signal: controller.signal }));
    const { id } = await guest.next("SPAWN");
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await spawned).toBe(reason);
    expect(await guest.next("SIGNAL")).toMatchObject({ id, payload: Buffer.from([9, 0, 0, 0, 1, 0, 0, 0]) });
    expect(await guest.next("RELEASE")).toMatchObject({ id });
    await guest.send(guestFrame.started(id), guestFrame.output(id, 0, 0, 1, "late"));
    await guest.answersPing(channel);
    channel.close();
  });

  test("after the start kills everything it started, and is what wait says", async () => {
    const channel = await openChannel(guest);
    const controller = new AbortController();
    const spawned = channel.spawn(spawnOf(["sleep"]), { signal: controller.signal });
    const id = await guest.start();
    const waited = caught((await spawned).wait());
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect((await guest.next("SIGNAL")).payload.readUInt32LE(4)).toBe(1);
    await guest.send(guestFrame.exit(id, { kind: 1, code: 9 }));
    expect(await waited).toBe(reason);
    channel.close();
  });

  test("after the end changes nothing", async () => {
    const channel = await openChannel(guest);
    const controller = new AbortController();
    const spawned = channel.spawn(spawnOf(["true"]), { signal: controller.signal });
    const id = await guest.start();
    const process = await spawned;
    await guest.send(guestFrame.exit(id, { code: 0 }));
    await process.wait();
    controller.abort(new Error("too late"));
    expect(await process.wait()).toMatchObject({ exitCode: 0 });
    channel.close();
  });
});

describe("the end of the sandbox", () => {
  test("every waiting caller gets the reason that was found", async () => {
    const reason = new SandboxError("sandbox_ended", "Cannot go on: it ran out of memory");
    const channel = await openChannel(guest, { explainEnd: async () => reason });
    const spawned = channel.spawn(spawnOf(["cat"], { stdin: true }));
    const id = await guest.start();
    const process = await spawned;
    const starting = caught(channel.spawn(spawnOf(["late"])));
    const asked = caught(channel.ping(never));
    const waited = caught(process.wait());
    await guest.send(guestFrame.output(id, 0, 0, 1, "last words"));
    guest.die();
    expect(await channel.closed).toBe(reason);
    expect(await Promise.all([starting, asked, waited])).toEqual([reason, reason, reason]);
    const seen: string[] = [];
    const read = async (): Promise<void> => {
      for await (const { data } of process) seen.push(data.toString());
    };
    expect(await caught(read())).toBe(reason);
    expect(seen).toEqual(["last words"]);
    expect(await caught(channel.ping(never))).toBe(reason);
    expect(await caught(channel.spawn(spawnOf(["true"])))).toBe(reason);
    expect(isSandboxError(await caught(process.writeStdin("x")), "invalid_state")).toBe(true);
  });

  test("every waiting caller gets an error even if no reason was found", async () => {
    const channel = await openChannel(guest, {
      explainEnd: async () => {
        throw new Error("nothing is known");
      },
    });
    guest.die();
    expect(isSandboxError(await channel.closed, "sandbox_ended")).toBe(true);
  });

  test("a process that had ended before keeps its end", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["true"]));
    const id = await guest.start();
    await guest.send(guestFrame.exit(id, { code: 5 }));
    const process = await spawned;
    guest.die();
    await channel.closed;
    expect(await process.wait()).toMatchObject({ exitCode: 5 });
  });
});

describe("closing", () => {
  test("closing sends nothing to the sandbox, and another channel can be opened", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["sleep"]));
    await guest.start();
    const waited = caught((await spawned).wait());
    channel.close();
    channel.close();
    expect(await channel.closed).toBeUndefined();
    expect(isSandboxError(await waited, "sandbox_ended")).toBe(true);
    const next = await openChannel(guest, { isFirstHost: false });
    await guest.answersPing(next);
    next.close();
  });
});

function readSpawn(payload: Buffer): Record<string, unknown> {
  const reader = new PayloadReader(payload);
  const list = <T>(read: () => T): T[] => Array.from({ length: reader.u32() }, read);
  const spawn = {
    flags: reader.u32(),
    windowBytes: reader.u32(),
    timeoutMs: reader.u32(),
    graceMs: reader.u32(),
    rows: reader.u16(),
    cols: reader.u16(),
    user: reader.str(4096),
    cwd: reader.str(4096),
    limits: list(() => ({ resource: reader.u32(), soft: reader.u64(), hard: reader.u64() })),
    argv: list(() => reader.str(300_000)),
    env: list(() => reader.str(300_000)),
  };
  reader.end();
  return spawn;
}
