import { createHash, randomBytes } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { protocolConstants } from "../../src/guest/frames.ts";
import { Gate } from "../support/gate.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

describe("input", { timeout: testTimeoutMs }, () => {
  test("all of it is handed on in order, then its end", async () => {
    await using guest = await NativeGuest.start();
    const data = randomBytes(10_000_000);
    const id = guest.spawn(["sha256sum"], { stdin: true });
    await guest.feed(id, data);
    const { stdout, exit } = await guest.finish(id);
    expect(stdout.toString().slice(0, 64)).toBe(createHash("sha256").update(data).digest("hex"));
    expect(exit).toMatchObject({ exitCode: 0 });
    expect(guest.stream(id).stdinAckedTo).toBe(data.byteLength);
  });

  test("bytes that the guest has already are skipped, and a frame that leaves a gap is ignored", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["cat"], { stdin: true });
    guest.stdin(id, 0, "abc");
    guest.stdin(id, 5, "never");
    guest.stdin(id, 1, "bcde");
    guest.stdin(id, 0, "abcd");
    guest.stdin(id, 0xffff_ffff, "far");
    guest.sendPosition("STDIN_EOF", id, 99);
    guest.stdin(id, 5, "f");
    guest.sendPosition("STDIN_EOF", id, 6);
    expect((await guest.finish(id)).stdout.toString()).toBe("abcdef");
  });

  test("more than the window is not taken", async () => {
    await using guest = await NativeGuest.start();
    const { STDIN_WINDOW, MAX_DATA } = protocolConstants;
    const blocked = guest.spawn(["/bin/sleep", "60"], { stdin: true });
    await guest.until(() => guest.stream(blocked).pid !== undefined);
    const piece = Buffer.alloc(MAX_DATA);
    for (let offset = 0; offset < STDIN_WINDOW * 2; offset += MAX_DATA) guest.stdin(blocked, offset, piece);
    await guest.settle();
    const [entry] = (await guest.hello()).filter((one) => one.id === blocked);
    // The bytes in the pipe count as handed on; the window is full on top of that.
    expect(entry?.inputReceived).toBe((entry?.inputHandedOn ?? 0) + STDIN_WINDOW);
  });

  test("input that a host sent is not lost with the host", async () => {
    await using guest = await NativeGuest.start();
    using gate = new Gate();
    const id = guest.spawn(["/bin/sh", "-c", `${gate.wait}; cat`], { stdin: true });
    const text = Buffer.alloc(200_000, "0123456789");
    for (let offset = 0; offset < text.byteLength; offset += 50_000) {
      guest.stdin(id, offset, text.subarray(offset, offset + 50_000));
    }
    await guest.settle();
    const [entry] = await guest.hello();
    expect(entry).toMatchObject({ inputReceived: 200_000 });
    gate.open();
    guest.sendPosition("ATTACH", id, 0);
    guest.sendPosition("STDIN_EOF", id, 200_000);
    expect((await guest.finish(id)).stdout.equals(text)).toBe(true);
  });

  test("STDIN_CLOSED comes once when the reader closes its end", async () => {
    await using guest = await NativeGuest.start();
    using gate = new Gate();
    const id = guest.spawn(["/bin/sh", "-c", `head -c 3 >/dev/null; exec <&-; ${gate.wait}`], { stdin: true });
    guest.stdin(id, 0, "abc");
    const stream = guest.stream(id);
    await guest.until(() => stream.stdinClosedAt !== undefined);
    expect(stream.stdinClosedAt).toBe(3);
    expect(stream.exit).toBeUndefined();
    guest.stdin(id, 3, "more");
    await guest.settle();
    gate.open();
    await guest.finish(id);
    expect(stream.counts.get("stdinClosed")).toBe(1);
  });

  test("without SPAWN_STDIN there is none, and what is sent is dropped", async () => {
    await using guest = await NativeGuest.start();
    const id = guest.spawn(["/bin/sh", "-c", "cat; readlink /proc/self/fd/0"]);
    guest.stdin(id, 0, "abc");
    const stream = await guest.finish(id);
    expect(stream.stdout.toString()).toBe("/dev/null\n");
    expect(stream.counts.has("stdinClosed")).toBe(false);
  });
});
