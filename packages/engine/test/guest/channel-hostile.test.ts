import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import type { GuestChannel } from "../../src/guest/channel.ts";
import type { EgressAnswer } from "../../src/guest/egress-relay.ts";
import { protocolConstants, toHost } from "../../src/guest/frames.ts";
import type { GuestProcess } from "../../src/guest/guest-process.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame, rawFrame } from "../support/guest-frames.ts";
import { SeededRandom } from "../support/seeded-random.ts";
import { spawnOf } from "../support/spawn-request.ts";

const MiB = 1024 * 1024;
const askedId = protocolConstants.GUEST_ID_BIT + 1;
let guest: FakeGuest;

beforeEach(() => {
  guest = new FakeGuest();
});
afterEach(() => {
  guest[Symbol.dispose]();
});

async function startProcess(channel: GuestChannel): Promise<{ process: GuestProcess; id: number }> {
  const spawned = channel.spawn(spawnOf(["victim"], { windowBytes: 4096 }));
  const id = await guest.start();
  return { process: await spawned, id };
}

/**
 * Returns the bytes of all buffers that are still in use; freed buffers are returned some time after the collection.
 */
function bufferBytes(): number {
  setFlagsFromString("--expose_gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  return process.memoryUsage().arrayBuffers;
}

describe("a guest that breaks the rules is cut off", () => {
  const frameWithLength = (length: number): Buffer => {
    const frame = guestFrame.done(1);
    frame.writeUInt32LE(length, 4);
    return frame;
  };

  test.for<{ what: string; say: (id: number) => Buffer[] }>([
    { what: "bytes that are no frame", say: () => [Buffer.from("Segmentation fault (core dumped)\n")] },
    { what: "a frame of a giant length", say: () => [frameWithLength(0xffff_ffff)] },
    { what: "a frame longer than allowed", say: () => [frameWithLength(protocolConstants.MAX_TO_HOST + 1)] },
    {
      what: "a frame with a wrong trailer",
      say: () => [Buffer.concat([guestFrame.done(1).subarray(0, 16), Buffer.alloc(4)])],
    },
    { what: "a frame of an unknown type", say: () => [rawFrame(0xee, 1)] },
    { what: "a frame of the host's", say: () => [rawFrame(0x10, 1, Buffer.alloc(100))] },
    { what: "a payload with bytes left over", say: (id) => [rawFrame(toHost.STARTED, id, Buffer.alloc(5))] },
    { what: "an unexpected welcome", say: () => [guestFrame.welcome(Buffer.alloc(16), [{ id: 9 }])] },
    { what: "output beyond its window", say: (id) => [guestFrame.output(id, 0, 0, 1, Buffer.alloc(4097))] },
    {
      what: "output beyond its window in many pieces",
      say: (id) => [0, 1, 2, 3, 4].map((n) => guestFrame.output(id, n * 1000, n * 1000, 1, Buffer.alloc(1000))),
    },
    { what: "output from somewhere else", say: (id) => [guestFrame.output(id, 5, 5, 1, "x")] },
    { what: "an exit before its output", say: (id) => [guestFrame.exit(id, { at: 5 })] },
    { what: "an end in the middle of nowhere", say: (id) => [guestFrame.end(id, 5)] },
    { what: "input taken that was never sent", say: (id) => [guestFrame.stdinAck(id, 1)] },
    { what: "a connection with a number of the host's", say: () => [guestFrame.connect(9, "example.org", 80)] },
    { what: "a connection to a name with a line end", say: () => [guestFrame.connect(askedId, "a\r\nHost: b", 80)] },
  ])("$what", async ({ say }) => {
    const channel = await openChannel(guest);
    const { process, id } = await startProcess(channel);
    const waited = caught(process.wait());
    await guest.send(...say(id));
    const reason = await channel.closed;
    expect(isSandboxError(reason, "guest_violation")).toBe(true);
    expect(await waited).toBe(reason);
    expect(await caught(channel.ping(new AbortController().signal))).toBe(reason);
  });

  test("two different exits", async () => {
    const channel = await openChannel(guest);
    const spawned = channel.spawn(spawnOf(["victim"]), { keep: true });
    const id = await guest.start();
    await guest.send(guestFrame.exit(id, { code: 0 }), guestFrame.exit(id, { code: 1 }));
    expect(isSandboxError(await channel.closed, "guest_violation")).toBe(true);
    // Messages before the violation were handled.
    expect(await (await spawned).wait()).toMatchObject({ exitCode: 0 });
  });

  test("the same connection requested twice", async () => {
    const channel = await openChannel(guest, { onEgress: () => new Promise<EgressAnswer>(() => undefined) });
    await guest.send(guestFrame.connect(askedId, "a", 80), guestFrame.connect(askedId, "b", 80));
    expect(isSandboxError(await channel.closed, "guest_violation")).toBe(true);
  });

  test("nothing after the breach is used", async () => {
    const channel = await openChannel(guest);
    const { process, id } = await startProcess(channel);
    await guest.send(rawFrame(0xee, 1), guestFrame.output(id, 0, 0, 1, "x"), guestFrame.exit(id, { at: 1 }));
    await channel.closed;
    expect(isSandboxError(await caught(process[Symbol.asyncIterator]().next()), "guest_violation")).toBe(true);
  });
});

describe("meaningless messages are ignored", () => {
  test.for<{ what: string; say: (id: number) => Buffer[] }>([
    {
      what: "answers without a request",
      say: () => [guestFrame.done(99), guestFrame.counted(98, 1), guestFrame.ready(97)],
    },
    { what: "a failure without a request", say: () => [guestFrame.failed(99, 1, "harm")] },
    {
      what: "streams that do not exist",
      say: () => [guestFrame.output(99, 7, 7, 1, "x"), guestFrame.exit(99, { at: 700 })],
    },
    { what: "a second start", say: (id) => [guestFrame.started(id, 1), guestFrame.started(id, 2)] },
    { what: "the same exit again", say: () => [] },
  ])("$what", async ({ say }) => {
    const channel = await openChannel(guest);
    const { process, id } = await startProcess(channel);
    await guest.send(...say(id));
    await guest.answersPing(channel);
    await guest.send(guestFrame.exit(id, { code: 4 }), guestFrame.exit(id, { code: 4 }));
    expect(await process.wait()).toMatchObject({ exitCode: 4 });
    await guest.answersPing(channel);
    channel.close();
  });
});

describe("the host's memory", () => {
  /** Sends requests until the channel has ended, and resolves to how it ended. */
  async function floodWithAsks(channel: GuestChannel): Promise<unknown> {
    const asks = Buffer.concat(
      Array.from({ length: 1000 }, (_, index) => guestFrame.connect(askedId + index, "example.org", 80)),
    );
    const flood = async (): Promise<unknown> => {
      for (;;) await guest.send(asks);
    };
    const flooded = caught(flood());
    const reason = await channel.closed;
    guest.die();
    await flooded;
    return reason;
  }

  test("a guest that sends requests without end and never reads the answers is cut off", async () => {
    const channel = await openChannel(guest);
    guest.stopReading();
    const reason = await floodWithAsks(channel);
    expect(isSandboxError(reason, "guest_violation") && reason.message).toContain("read");
  });

  test("a guest that sends requests without end while its answers are queued is cut off", async () => {
    const channel = await openChannel(guest);
    const prepared = channel.prepareCheckpoint(new AbortController().signal);
    await guest.send(guestFrame.ready((await guest.next("PREPARE")).id));
    await prepared;
    const reason = await floodWithAsks(channel);
    expect(isSandboxError(reason, "guest_violation") && reason.message).toContain("read");
  });

  test("a guest with more waiting requests than it can have streams is cut off", async () => {
    let asked = 0;
    const channel = await openChannel(guest, {
      onEgress: () => {
        asked += 1;
        return new Promise<EgressAnswer>(() => undefined);
      },
    });
    for (let index = 0; index < protocolConstants.MAX_STREAMS; index += 1) {
      await guest.send(guestFrame.connect(askedId + index, "example.org", 80));
    }
    await guest.hearsOnlyPing(channel);
    await guest.send(guestFrame.connect(askedId + protocolConstants.MAX_STREAMS, "example.org", 80));
    expect(await channel.closed).toMatchObject({ code: "guest_violation" });
    expect(asked).toBe(protocolConstants.MAX_STREAMS);
  });

  test("a flood of frames for unknown streams leaves nothing behind", async () => {
    const channel = await openChannel(guest);
    const before = bufferBytes();
    const flood = Buffer.concat(Array.from({ length: 16 }, () => guestFrame.output(99, 0, 0, 1, Buffer.alloc(65_536))));
    for (let round = 0; round < 16; round += 1) await guest.send(flood);
    await guest.answersPing(channel);
    await expect.poll(() => bufferBytes() - before).toBeLessThan(4 * MiB);
    channel.close();
  });

  test("unread output costs its own size, not that of the chunk that it came in", async () => {
    const channel = await openChannel(guest);
    const quiet = await startProcess(channel);
    const before = bufferBytes();
    const others = guestFrame.output(99, 0, 0, 1, Buffer.alloc(65_536 - 100));
    for (let round = 0; round < 300; round += 1) {
      await guest.send(others, guestFrame.output(quiet.id, round, Math.floor(round / 2), 1 + (round % 2), "."));
    }
    await guest.answersPing(channel);
    await expect.poll(() => bufferBytes() - before).toBeLessThan(4 * MiB);
    channel.close();
  });

  test("after any bytes of a process the host ends it or continues, and nothing else", async () => {
    const random = SeededRandom.forFuzz("channel");
    for (const endMs = performance.now() + thorough(200, 20_000); performance.now() < endMs;) {
      using fuzzed = new FakeGuest();
      const channel = await openChannel(fuzzed);
      const spawned = channel.spawn(spawnOf(["victim"]));
      const id = await fuzzed.start();
      await spawned;
      const frames = Array.from({ length: 1 + random.below(10) }, () => hostileFrame(random, id));
      await fuzzed.send(...frames).catch(() => undefined);
      fuzzed.die();
      const reason = await channel.closed;
      expect(isSandboxError(reason, "guest_violation") || isSandboxError(reason, "sandbox_ended")).toBe(true);
    }
  });
});

/** Makes a frame that is well-formed outside, about an existing stream, with random contents. */
function hostileFrame(random: SeededRandom, id: number): Buffer {
  const number = random.oneOf([0, 1, 5, 4096, 65_536, 2 ** 40]);
  return random.oneOf([
    () =>
      rawFrame(random.oneOf(Object.values(toHost)), random.oneOf([id, 0, askedId]), random.bytes(random.below(100))),
    () => guestFrame.output(id, number, number, 1, "x"),
    () => guestFrame.output(id, 0, 0, 1 + random.below(2), random.bytes(1 + random.below(5000))),
    () => guestFrame.exit(id, { kind: random.below(2), code: random.below(70), at: random.oneOf([0, number]) }),
    () => guestFrame.end(id, random.oneOf([0, number])),
    () => guestFrame.stdinAck(id, random.oneOf([0, number])),
    () => guestFrame.stdinClosed(id, 0),
    () => guestFrame.failed(id, random.below(200), "x"),
    () => guestFrame.connect(askedId + random.below(3), "example.org", random.below(65_536)),
    () => guestFrame.welcome(random.bytes(16), [{ id: random.below(10) }]),
  ])();
}
