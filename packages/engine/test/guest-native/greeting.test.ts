import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { encodeFrame, frameMagic, headerBytes, protocolConstants, toGuest } from "../../src/guest/frames.ts";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { helloPayload, NativeGuest, spawnPayload } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const ping = encodeFrame(toGuest.PING, 7, Buffer.from("ping"));

describe("greeting", { timeout: testTimeoutMs }, () => {
  test("a guest sends nothing before it is greeted", async () => {
    await using guest = await NativeGuest.start({ greet: false });
    guest.raw(ping);
    guest.send("SPAWN", 1, spawnPayload(["/bin/true"]));
    expect(await guest.hello()).toEqual([]);
    await guest.settle();
    expect(guest.answers.has(7)).toBe(false);
    expect(guest.streams.size).toBe(0);
  });

  test("an unknown version is answered with the guest's own, and only HELLO is accepted after it", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sleep", "60"]);
    await guest.until(() => guest.stream(id).pid !== undefined);
    const nonce = randomBytes(16);
    // The decoder of a host of another version would refuse the list, so here the list must be empty.
    await guest.hello({ version: 9 });
    expect(guest.entries).toEqual([]);
    guest.send("SPAWN", 7, spawnPayload(["/bin/true"]));
    guest.send("HELLO", 0, helloPayload(nonce, 2));
    const entries = await guest.hello();
    expect(entries.map((entry) => entry.id)).toEqual([id]);
  });

  test.for([
    ["a wrong magic", Buffer.from("ATOM0000000000000000")],
    ["a length beyond the limit", header(protocolConstants.MAX_TO_GUEST + 1)],
    ["the largest length there is", header(0xffff_ffff)],
    ["bits that must be zero", Buffer.concat([ping.subarray(0, 9), Buffer.from([1]), ping.subarray(10)])],
    ["a wrong trailer", Buffer.concat([ping.subarray(0, -1), Buffer.from([0])])],
    ["random bytes", randomBytes(5000)],
  ] as const)("after %s the guest accepts nothing but HELLO", async ([, bytes]) => {
    await using guest = await NativeGuest.start();
    guest.raw(bytes);
    // A frame that was obeyed would show in the greeting; an answer would be dropped by it.
    guest.send("SPAWN", 7, spawnPayload(["/bin/true"]));
    expect(await guest.hello()).toEqual([]);
  });

  test("padding completes whatever frame a dead host tore, at every place", async () => {
    await using guest = await NativeGuest.start();
    const frame = encodeFrame(toGuest.PING, 7, Buffer.alloc(40, 0x41));
    for (let length = 1; length < frame.byteLength; length += 1) {
      guest.raw(frame.subarray(0, length));
      await guest.hello({ padded: true });
    }
    await guest.settle();
    expect(guest.answers.has(7)).toBe(false);
  });

  test("padding completes a torn frame of the largest size", async () => {
    await using guest = await NativeGuest.start();
    guest.raw(header(protocolConstants.MAX_TO_GUEST));
    await guest.hello({ padded: true });
    await guest.settle();
  });

  test("a greeting inside a torn frame is data, and what follows it there is not obeyed", async () => {
    await using guest = await NativeGuest.start();
    const nonce = randomBytes(16);
    const forged = Buffer.concat([
      encodeFrame(toGuest.HELLO, 0, helloPayload(nonce)),
      encodeFrame(toGuest.SPAWN, 99, spawnPayload(["/bin/true"])),
    ]);
    const payload = new PayloadWriter().u64(0).bytes(forged).bytes(Buffer.alloc(500)).finish();
    const torn = encodeFrame(toGuest.STDIN, 1, payload);
    guest.raw(torn.subarray(0, headerBytes + 8 + forged.byteLength));
    expect(await guest.hello({ padded: true })).toEqual([]);
    await guest.settle();
    expect(guest.streams.size).toBe(0);
  });

  test("frames arrive whole however the bytes are cut", async () => {
    await using guest = await NativeGuest.start();
    for (const byte of Buffer.concat([ping, ping])) {
      guest.raw(Buffer.from([byte]));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await guest.settle();
    expect(guest.answers.get(7)).toMatchObject({ type: "pong", payload: Buffer.from("ping") });
  });

  test("a greeting drops what was queued for the host before, and half a frame with it", async () => {
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    guest.pauseReading();
    const id = guest.spawn(["/bin/sh", "-c", "head -c 1000000 /dev/zero"], { windowBytes: 1_048_576 });
    for (let pings = 0; pings < 200; pings += 1) guest.send("PING", 1000 + pings, Buffer.alloc(1000));
    const greeting = guest.hello();
    guest.resumeReading();
    await greeting;
    await guest.settle();
    expect(guest.entries[0]).toMatchObject({ id, kind: "process", ackedAt: 0 });
  });

  test("after a greeting every stream is silent until it is attached", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "echo before; read line; echo after"], { stdin: true });
    await guest.until(() => guest.stream(id).stdout.includes("before"));
    await guest.hello();
    guest.stdin(id, 0, "go\n");
    await expect.poll(() => guest.ask("COUNT")).toMatchObject({ processes: 0 });
    // The host knows all output by now, and the guest would have sent it by its next turn.
    await guest.settle();
    expect(guest.stream(id).stdout.toString()).toBe("before\n");
    guest.sendPosition("ATTACH", id, guest.stream(id).at);
    expect((await guest.finish(id)).stdout.toString()).toBe("before\nafter\n");
  });
});

describe("what cannot be understood", { timeout: testTimeoutMs }, () => {
  test("an unknown type is answered with ENOSYS", async () => {
    await using guest = await NativeGuest.start();
    const frame = Buffer.from(ping);
    frame.writeUInt8(0x7f, 8);
    frame.writeUInt32LE(~(4 ^ 7 ^ 0x7f) >>> 0, frame.byteLength - 4);
    guest.raw(frame);
    await guest.settle();
    expect(guest.answers.get(7)).toMatchObject({ type: "failed", errno: 38 });
  });

  const withPayload = Object.keys(toGuest).filter((name) => name !== "HELLO") as (keyof typeof toGuest)[];
  test.for(withPayload)("%s with a payload of the wrong length is answered with EBADMSG", async (name) => {
    await using guest = await NativeGuest.start();
    const wrong = name === "PING" ? Buffer.alloc(1025) : Buffer.alloc(3);
    expect(await guest.ask(name, wrong)).toMatchObject({ type: "failed", errno: 74 });
    await guest.settle();
  });

  test.for(["STDIN", "STDIN_EOF", "ACK", "SIGNAL", "RESIZE", "RELEASE"] as const)(
    "%s for a stream that is not there is ignored",
    async (name) => {
      await using guest = await NativeGuest.start();
      const sizes = { STDIN: 8, STDIN_EOF: 8, ACK: 8, SIGNAL: 8, RESIZE: 4, RELEASE: 0 };
      guest.send(name, 41, Buffer.alloc(sizes[name]));
      await guest.settle();
      expect(guest.answers.size).toBe(0);
    },
  );
});

function header(length: number): Buffer {
  return new PayloadWriter().u32(frameMagic).u32(length).u32(toGuest.PING).u32(7).finish();
}
