import { closeSync, constants, openSync, writeSync } from "node:fs";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { GuestChannel } from "../../src/guest/channel.ts";
import { encodeFrame, protocolConstants, toGuest } from "../../src/guest/frames.ts";
import type { GuestProcess } from "../../src/guest/guest-process.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { exitPayload, guestFrame } from "../support/guest-frames.ts";
import { spawnOf } from "../support/spawn-request.ts";

const never = new AbortController().signal;
const { STDIN_WINDOW } = protocolConstants;
let guest: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
});

async function textOf(process: GuestProcess): Promise<string> {
  let text = "";
  for await (const { data } of process) text += data.toString();
  return text;
}

/** Leaves a part of a frame in the FIFO, like a host that is killed in the middle of a write. */
function leaveTornFrame(bytes: Buffer): void {
  const fd = openSync(guest.paths.in, constants.O_WRONLY | constants.O_NONBLOCK);
  writeSync(fd, bytes);
  closeSync(fd);
}

describe("a host that comes after another", () => {
  const frame = encodeFrame(toGuest.STDIN, 1, Buffer.alloc(8), Buffer.alloc(1000, "ATOL"));

  test.for([1, 4, 15, 16, 17, 500, frame.byteLength - 1])(
    "it is heard although its predecessor tore a frame after %i bytes",
    async (length) => {
      (await openChannel(guest)).close();
      leaveTornFrame(frame.subarray(0, length));
      const next = await openChannel(guest, { isFirstHost: false });
      expect(guest.skippedBytes).toBeGreaterThanOrEqual(length);
      await guest.hearsOnlyPing(next);
      next.close();
    },
  );

  test("frames for the predecessor are ignored", async () => {
    const first = await openChannel(guest);
    const spawned = first.spawn(spawnOf(["yes"]));
    const id = await guest.start();
    await spawned;
    first.close();
    const opened = GuestChannel.open({ paths: guest.paths, isFirstHost: false, signal: never });
    const output = guestFrame.output(id, 0, 0, 1, "for another");
    await guest.send(output, output.subarray(0, 30));
    await guest.greet({ entries: [{ id, pid: 100, producedAt: 11 }] });
    const second = await opened;
    const process = second.attach(id, { stdoutBytes: 0, stderrBytes: 0 });
    expect((await guest.next("ATTACH")).payload.readBigUInt64LE()).toBe(0n);
    await guest.send(output, guestFrame.end(id, 11), guestFrame.exit(id, { at: 11 }));
    expect(await textOf(process)).toBe("for another");
    second.close();
  });

  test("each byte reaches a host that stores before it acknowledges exactly once", async () => {
    const first = await openChannel(guest);
    const spawned = first.spawn(spawnOf(["sh"]));
    const id = await guest.start(55);
    const process = await spawned;
    await guest.send(guestFrame.output(id, 0, 0, 1, "one "), guestFrame.output(id, 4, 0, 2, "two "));
    const stored = { stdoutBytes: 0, stderrBytes: 0 };
    const events = process[Symbol.asyncIterator]();
    const { value } = await events.next();
    stored.stdoutBytes += value?.data.byteLength ?? 0;
    await guest.send(guestFrame.output(id, 8, 4, 1, "never stored"));
    first.close();

    const second = await openChannel(guest, {
      isFirstHost: false,
      entries: [{ id, pid: 55, ackedAt: 0, producedAt: 20 }],
    });
    expect(second.inherited).toMatchObject([{ id, pid: 55, kind: "process", state: "living" }]);
    const attached = second.attach(id, stored);
    expect(second.inherited).toEqual([]);
    expect(attached.pid).toBe(55);
    expect(await guest.next("ATTACH")).toMatchObject({ id, payload: Buffer.from([4, 0, 0, 0, 0, 0, 0, 0]) });
    // A guest whose window is full continues only when it gets this acknowledgement.
    expect(await guest.next("ACK")).toMatchObject({ id, payload: Buffer.from([4, 0, 0, 0, 0, 0, 0, 0]) });
    await guest.send(
      guestFrame.output(id, 4, 0, 2, "two "),
      guestFrame.output(id, 8, 4, 1, "three"),
      guestFrame.end(id, 13),
      guestFrame.exit(id, { code: 9, at: 13 }),
    );
    expect(await textOf(attached)).toBe("two three");
    expect(await attached.wait()).toMatchObject({ exitCode: 9 });
    second.close();
  });

  test("the end of a process that ended without a host is reported", async () => {
    const exit = { code: 7, at: 3 };
    const channel = await openChannel(guest, {
      entries: [{ id: 4, state: 2, flags: 6, ackedAt: 0, producedAt: 3, exit: exitPayload(exit) }],
    });
    expect(channel.inherited).toMatchObject([{ state: "exited", exit: { exitCode: 7 } }]);
    const process = channel.attach(4, { stdoutBytes: 0, stderrBytes: 0 });
    await guest.next("ATTACH");
    await guest.send(guestFrame.output(4, 0, 0, 1, "bye"), guestFrame.end(4, 3), guestFrame.exit(4, exit));
    expect(await textOf(process)).toBe("bye");
    expect(await process.wait()).toMatchObject({ exitCode: 7 });
    expect(await guest.next("RELEASE")).toMatchObject({ id: 4 });
    channel.close();
  });

  test("it writes from the guest's position on, and not beyond the window that its predecessor used", async () => {
    const entries = [{ id: 4, inputReceived: STDIN_WINDOW, inputHandedOn: 10 }];
    const channel = await openChannel(guest, { entries });
    const process = channel.attach(4, { stdoutBytes: 0, stderrBytes: 0 });
    await guest.next("ATTACH");
    const written = process.writeStdin("0123456789");
    const tooMuch = process.writeStdin("x");
    await written;
    const { payload } = await guest.next("STDIN");
    expect(payload.readBigUInt64LE()).toBe(BigInt(STDIN_WINDOW));
    await guest.hearsOnlyPing(channel);
    await guest.send(guestFrame.stdinAck(4, 11));
    await tooMuch;
    expect((await guest.next("STDIN")).payload.readBigUInt64LE()).toBe(BigInt(STDIN_WINDOW) + 10n);
    channel.close();
  });

  test("attaching at an offset that the guest does not have is refused", async () => {
    const channel = await openChannel(guest, { entries: [{ id: 4, ackedAt: 10, producedAt: 20 }] });
    const attachAt = (id: number, stdoutBytes: number) => async () =>
      channel.attach(id, { stdoutBytes, stderrBytes: 0 });
    expect(isSandboxError(await caught(attachAt(5, 10)()), "not_found")).toBe(true);
    expect(isSandboxError(await caught(attachAt(4, 9)()), "invalid_argument")).toBe(true);
    expect(isSandboxError(await caught(attachAt(4, 21)()), "invalid_argument")).toBe(true);
    expect(channel.inherited).toHaveLength(1);
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("connections of its predecessor are released, because their other end is gone", async () => {
    const entries = [
      { id: 3, kind: 2 },
      { id: 0x8000_0001, kind: 3, state: 3 },
    ];
    const channel = await openChannel(guest, { entries });
    expect(channel.inherited).toEqual([]);
    expect([await guest.next("RELEASE"), await guest.next("RELEASE")].map(({ id }) => id)).toEqual([3, 0x8000_0001]);
    channel.close();
  });

  test("a process of its predecessor can be released", async () => {
    const channel = await openChannel(guest, { entries: [{ id: 3 }] });
    channel.releaseInherited(3);
    channel.releaseInherited(3);
    channel.releaseInherited(4);
    expect(await guest.next("RELEASE")).toMatchObject({ id: 3 });
    expect(channel.inherited).toEqual([]);
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("it uses no id that is in use", async () => {
    const channel = await openChannel(guest, { entries: [{ id: 1 }, { id: 0x7fff_ffff }] });
    const spawned = channel.spawn(spawnOf(["true"]));
    expect(await guest.start()).toBe(2);
    await spawned;
    channel.close();
  });
});

describe("a second greeting on the same channel", () => {
  async function greetAgain(channel: GuestChannel, entries: Parameters<FakeGuest["greet"]>[0]): Promise<void> {
    const greeted = channel.greet(never);
    await guest.greet(entries);
    await greeted;
  }

  test("output goes on where it was", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["sh"]));
    const id = await guest.start();
    const process = await spawned;
    const read = textOf(process);
    await guest.send(guestFrame.output(id, 0, 0, 1, "before "));
    await guest.answersPing(channel);
    await greetAgain(channel, { entries: [{ id, producedAt: 12 }] });
    expect((await guest.next("ATTACH")).payload.readBigUInt64LE()).toBe(7n);
    expect(channel.inherited).toEqual([]);
    await guest.send(guestFrame.output(id, 7, 7, 1, "after"), guestFrame.exit(id, { at: 12 }));
    expect(await read).toBe("before after");
    channel.close();
  });

  test("a start whose answer was dropped is found in the greeting", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["sh"]));
    const { id } = await guest.next("SPAWN");
    await greetAgain(channel, { entries: [{ id, pid: 42 }] });
    expect((await spawned).pid).toBe(42);
    channel.close();
  });

  test("what the guest does not know any more ends", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["sh"]));
    await guest.start();
    const waited = caught((await spawned).wait());
    await greetAgain(channel, { entries: [] });
    expect(isSandboxError(await waited, "not_found")).toBe(true);
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("lost input is sent again", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["cat"], { stdin: true }));
    const id = await guest.start();
    const process = await spawned;
    await process.writeStdin("0123456789");
    await process.closeStdin();
    await guest.until("STDIN_EOF");
    await greetAgain(channel, { entries: [{ id, inputReceived: 4, inputHandedOn: 4 }] });
    await guest.next("ATTACH");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("456789");
    expect((await guest.next("STDIN_EOF")).payload.readBigUInt64LE()).toBe(10n);
    channel.close();
  });

  test("its list of what a predecessor left replaces the first one", async () => {
    const channel = await openChannel(guest, { entries: [{ id: 3 }, { id: 4 }] });
    await greetAgain(channel, { entries: [{ id: 4 }] });
    expect(channel.inherited.map(({ id }) => id)).toEqual([4]);
    channel.close();
  });
});

describe("a reserved id", () => {
  test("belongs to the process, and no other stream gets it", async () => {
    const channel = await openChannel(guest);
    const streamId = channel.reserveStreamId();
    const other = channel.spawn(spawnOf(["other"]));
    expect(await guest.start(70)).not.toBe(streamId);
    await other;
    const spawned = channel.spawn(spawnOf(["sh"]), { streamId });
    expect(await guest.start(71)).toBe(streamId);
    expect((await spawned).streamId).toBe(streamId);
    channel.close();
  });

  test("that is in use inside is not replaced by another", async () => {
    const channel = await openChannel(guest);
    const streamId = channel.reserveStreamId();
    const spawned = channel.spawn(spawnOf(["sh"]), { streamId });
    await guest.next("SPAWN");
    await guest.send(guestFrame.failed(streamId, 17, "start a process"));
    await expect(spawned).rejects.toMatchObject({ code: "spawn_failed", details: { errno: "EEXIST" } });
    channel.close();
  });
});

test("an unwanted process of a predecessor is killed and forgotten", async () => {
  const channel = await openChannel(guest, { entries: [{ id: 4 }] });
  channel.killInherited(4);
  channel.killInherited(4);
  expect((await guest.next("SIGNAL")).payload.readUInt32LE()).toBe(9);
  expect(await guest.next("RELEASE")).toMatchObject({ id: 4 });
  expect(channel.inherited).toEqual([]);
  channel.close();
});
