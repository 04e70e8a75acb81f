import { once } from "node:events";
import { constants } from "node:os";
import { text } from "node:stream/consumers";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GuestChannel } from "../../src/guest/channel.ts";
import type { GuestConnection } from "../../src/guest/guest-connection.ts";
import { caught } from "../support/caught.ts";
import { FakeGuest, openChannel } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";

const never = new AbortController().signal;
let guest: FakeGuest;
let channel: GuestChannel;

beforeEach(async () => {
  guest = new FakeGuest();
  channel = await openChannel(guest);
});
afterEach(() => {
  channel.close();
  guest[Symbol.dispose]();
});

async function dial(): Promise<{ connection: GuestConnection; id: number }> {
  const dialled = channel.dial(8080, { signal: never });
  const { id } = await guest.next("DIAL");
  await guest.send(guestFrame.started(id, 0));
  return { connection: await dialled, id };
}

describe("dialling", () => {
  test.for([
    { family: 4, payload: [0x90, 0x1f, 4, 0, 0, 4, 0] },
    { family: 6, payload: [0x90, 0x1f, 6, 0, 0, 4, 0] },
  ] as const)("port and family $family are asked for", async ({ family, payload }) => {
    const dialled = channel.dial(8080, { family, signal: never });
    const frame = await guest.next("DIAL");
    expect([...frame.payload]).toEqual(payload);
    await guest.send(guestFrame.started(frame.id, 0));
    (await dialled).destroy();
  });

  test("a connection that has sent everything and ended at once ends", async () => {
    const dialled = channel.dial(8080, { signal: never });
    const { id } = await guest.next("DIAL");
    // The frames come in one piece, so all of them are taken before the caller of `dial` continues.
    await guest.send(
      Buffer.concat([guestFrame.started(id, 0), guestFrame.output(id, 0, 0, 1, "banner"), guestFrame.end(id, 6)]),
    );
    expect(await text(await dialled)).toBe("banner");
  });

  test("a port without a listener is an error of its own", async () => {
    const dialled = caught(channel.dial(1, { signal: never }));
    const { id } = await guest.next("DIAL");
    await guest.send(guestFrame.failed(id, constants.errno.ECONNREFUSED, "connect to 127.0.0.1:1"));
    expect(await dialled).toMatchObject({ code: "spawn_failed", details: { errno: "ECONNREFUSED" } });
    await guest.hearsOnlyPing(channel);
  });

  test("an abort abandons the connection, whether or not the guest answers", async () => {
    const controller = new AbortController();
    const dialled = caught(channel.dial(1, { signal: controller.signal }));
    const { id } = await guest.next("DIAL");
    const reason = new Error("changed my mind");
    controller.abort(reason);
    expect(await dialled).toBe(reason);
    expect(await guest.next("RELEASE")).toMatchObject({ id });
    await guest.send(guestFrame.started(id, 0), guestFrame.output(id, 0, 0, 1, "late"));
    await guest.hearsOnlyPing(channel);
  });

  test("an abort after it is established changes nothing", async () => {
    const controller = new AbortController();
    const dialled = channel.dial(1, { signal: controller.signal });
    const { id } = await guest.next("DIAL");
    await guest.send(guestFrame.started(id, 0));
    const connection = await dialled;
    controller.abort(new Error("too late"));
    await guest.hearsOnlyPing(channel);
    connection.destroy();
  });
});

describe("a connection", () => {
  test("it carries bytes both ways, and is released when both have ended", async () => {
    const { connection, id } = await dial();
    connection.end("request");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("request");
    expect((await guest.next("STDIN_EOF")).payload.readBigUInt64LE()).toBe(7n);
    await guest.send(
      guestFrame.output(id, 0, 0, 1, "res"),
      guestFrame.output(id, 3, 3, 1, "ponse"),
      guestFrame.end(id, 8),
    );
    expect(await text(connection)).toBe("response");
    expect(await guest.next("RELEASE")).toMatchObject({ id });
  });

  test("one direction can end long before the other", async () => {
    const { connection, id } = await dial();
    await guest.send(guestFrame.output(id, 0, 0, 1, "all I have"), guestFrame.end(id, 10));
    const [data] = await once(connection, "data");
    expect(String(data)).toBe("all I have");
    await once(connection, "end");
    await guest.hearsOnlyPing(channel);
    connection.end("bye");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("bye");
    await guest.next("STDIN_EOF");
    expect(await guest.next("RELEASE")).toMatchObject({ id });
  });

  test("destroying it closes it inside", async () => {
    const { connection, id } = await dial();
    connection.destroy();
    expect(await guest.next("RELEASE")).toMatchObject({ id });
    await guest.send(guestFrame.output(id, 0, 0, 1, "late"));
    await guest.hearsOnlyPing(channel);
  });

  test("writing to a reader that is gone is an error, and ends it", async () => {
    const { connection, id } = await dial();
    await guest.send(guestFrame.stdinClosed(id, 0));
    await guest.hearsOnlyPing(channel);
    const failed = once(connection, "error");
    connection.write("hello?");
    expect(isSandboxError((await failed)[0], "invalid_state")).toBe(true);
    expect(await guest.next("RELEASE")).toMatchObject({ id });
  });

  test("a slow writer inside is not read faster than the reader here reads", async () => {
    const { connection, id } = await dial();
    const window = 262_144;
    const piece = 65_536;
    for (let at = 0; at < window; at += piece) await guest.send(guestFrame.output(id, at, at, 1, Buffer.alloc(piece)));
    await guest.hearsOnlyPing(channel);
    let received = 0;
    connection.on("data", (data: Buffer) => {
      received += data.byteLength;
    });
    let acked = 0n;
    while (acked < window) acked = (await guest.next("ACK")).payload.readBigUInt64LE();
    expect(received).toBe(window);
    connection.destroy();
  });

  test("a reader gets an error at the end of the sandbox", async () => {
    const { connection } = await dial();
    const failed = once(connection, "error");
    connection.resume();
    guest.die();
    expect(isSandboxError((await failed)[0], "sandbox_ended")).toBe(true);
  });

  test("a reader that has read everything gets an end at the end of the sandbox", async () => {
    const { connection, id } = await dial();
    await guest.send(guestFrame.output(id, 0, 0, 1, "all"), guestFrame.end(id, 3));
    await guest.answersPing(channel);
    guest.die();
    await channel.closed;
    expect(await text(connection)).toBe("all");
    connection.destroy();
  });

  test("a connection cannot exit", async () => {
    const { connection, id } = await dial();
    connection.on("error", () => undefined);
    await guest.send(guestFrame.exit(id));
    expect(isSandboxError(await channel.closed, "guest_violation")).toBe(true);
  });
});
