import { beforeAll, describe, expect, test } from "vitest";
import { protocolConstants } from "../../src/guest/frames.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("release"), buildTimeoutMs);

const mebibyte = 1024 * 1024;

describe("memory", { timeout: testTimeoutMs }, () => {
  test("an idle guest is small", async () => {
    await using guest = await NativeGuest.start({ build: "release" });
    await guest.run(["/bin/true"]);
    expect(guest.memoryBytes).toBeLessThan(4 * mebibyte);
  });

  test("streams without a reader share a budget, and still work when it is used up", async () => {
    await using guest = await NativeGuest.start({ build: "release" });
    guest.acknowledges = false;
    const windowBytes = protocolConstants.WINDOW_MAX;
    const ids = Array.from({ length: 150 }, () => guest.spawn(["/usr/bin/yes"], { windowBytes }));
    for (const id of ids) guest.stream(id).keepsOutput = false;
    await guest.until(() => ids.every((id) => guest.stream(id).at > 0));
    const late = guest.spawn(["/bin/sh", "-c", "head -c 500000 /dev/zero"], { windowBytes });
    await guest.until(() => guest.stream(late).at > 0);
    guest.acknowledges = true;
    guest.sendPosition("ACK", late, guest.stream(late).at);
    await guest.finish(late);
    expect(guest.stream(late).at).toBe(500_000);
    expect(guest.memoryBytes).toBeLessThan(90 * mebibyte);
    for (const id of ids) {
      guest.signal(id, 9);
      guest.send("RELEASE", id);
    }
    await expect.poll(() => guest.ask("COUNT")).toMatchObject({ streams: 0, bufferedBytes: 0 });
    expect(guest.memoryBytes).toBeLessThan(24 * mebibyte);
  });

  test("thousands of processes leave nothing behind", async () => {
    await using guest = await NativeGuest.start({ build: "release" });
    for (let round = 0; round < 20; round += 1) {
      await Promise.all(Array.from({ length: 100 }, () => guest.run(["/bin/echo", "x"])));
    }
    expect(await guest.ask("COUNT")).toMatchObject({ streams: 0, bufferedBytes: 0 });
    expect(guest.memoryBytes).toBeLessThan(8 * mebibyte);
  });
});
