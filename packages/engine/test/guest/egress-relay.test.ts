import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GuestChannel } from "../../src/guest/channel.ts";
import type { EgressAnswer, EgressRequest, EgressHandler } from "../../src/guest/egress-relay.ts";
import { protocolConstants } from "../../src/guest/frames.ts";
import { PayloadReader } from "../../src/guest/wire.ts";
import { FakeGuest, openChannel, type HostFrame } from "../support/fake-guest.ts";
import { guestFrame } from "../support/guest-frames.ts";

const asked = protocolConstants.GUEST_ID_BIT + 1;
let guest: FakeGuest;
let server: Server;
let accepted: Promise<Socket>;
let outsides: Socket[];

beforeEach(async () => {
  guest = new FakeGuest();
  server = createServer({ allowHalfOpen: true });
  accepted = once(server, "connection").then(([socket]) => socket as Socket);
  outsides = [];
  server.on("connection", (socket) => outsides.push(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(async () => {
  guest[Symbol.dispose]();
  for (const socket of outsides) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
});

/** Allows every connection, to the server of this test. */
const allow: EgressHandler = async () => {
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  await once(socket, "connect");
  return { verdict: "allowed", socket };
};

function verdictOf({ payload }: HostFrame): { verdict: number; reason: string } {
  const reader = new PayloadReader(payload);
  const verdict = { verdict: reader.u8(), reason: reader.str(4096) };
  reader.end();
  return verdict;
}

/** Makes a connection that was requested and allowed, and reaches the server. */
async function relay(): Promise<{ channel: GuestChannel; outside: Socket }> {
  const channel = await openChannel(guest, { onEgress: allow });
  await guest.send(guestFrame.connect(asked, "example.org", 443));
  expect(verdictOf(await guest.next("VERDICT"))).toEqual({ verdict: 0, reason: "" });
  return { channel, outside: await accepted };
}

async function readFrom(socket: Socket): Promise<string> {
  const [data] = await once(socket, "data");
  return String(data);
}

describe("what may go out", () => {
  test("the handler is asked by name, port and protocol", async () => {
    const asks: EgressRequest[] = [];
    const onEgress: EgressHandler = async (ask) => {
      asks.push(ask);
      return { verdict: "refused", reason: "not today" };
    };
    const channel = await openChannel(guest, { onEgress });
    await guest.send(guestFrame.connect(asked, "example.org", 443, 3));
    expect(verdictOf(await guest.next("VERDICT"))).toEqual({ verdict: 1, reason: "not today" });
    expect(asks).toEqual([{ host: "example.org", port: 443, protocol: "socks5" }]);
    channel.close();
  });

  test.for([
    { verdict: "refused", number: 1 },
    { verdict: "unknown_name", number: 2 },
    { verdict: "unreachable", number: 3 },
    { verdict: "timed_out", number: 4 },
  ] as const)("$verdict is sent as $number", async ({ verdict, number }) => {
    const channel = await openChannel(guest, { onEgress: async () => ({ verdict, reason: "because" }) });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT"))).toEqual({ verdict: number, reason: "because" });
    channel.close();
  });

  test("without a handler nothing goes out", async () => {
    const channel = await openChannel(guest);
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT"))).toMatchObject({ verdict: 1 });
    channel.close();
  });

  test.for<{ what: string; onEgress: EgressHandler }>([
    {
      what: "rejects",
      onEgress: async () => {
        throw new Error("no route");
      },
    },
    {
      what: "throws",
      onEgress: () => {
        throw new Error("no route");
      },
    },
  ])("a handler that $what has not allowed it", async ({ onEgress }) => {
    const channel = await openChannel(guest, { onEgress });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT"))).toEqual({ verdict: 3, reason: "no route" });
    channel.close();
  });

  test("an id may be used again after a refusal", async () => {
    const channel = await openChannel(guest);
    for (let round = 0; round < 3; round += 1) {
      await guest.send(guestFrame.connect(asked, "example.org", 443));
      await guest.next("VERDICT");
    }
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("a very long reason is cut to what the guest reads", async () => {
    const onEgress = async (): Promise<EgressAnswer> => ({ verdict: "refused", reason: "x".repeat(5000) });
    const channel = await openChannel(guest, { onEgress });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT")).reason.length).toBe(512);
    channel.close();
  });
});

describe("an allowed connection", () => {
  test("it carries bytes both ways", async () => {
    const { channel, outside } = await relay();
    await guest.send(guestFrame.output(asked, 0, 0, 1, "GET /"));
    expect(await readFrom(outside)).toBe("GET /");
    outside.write("200 OK");
    const { id, payload } = await guest.next("STDIN");
    expect(id).toBe(asked);
    expect(payload.subarray(8).toString()).toBe("200 OK");
    channel.close();
  });

  test("the client inside ends first", async () => {
    const { channel, outside } = await relay();
    outside.resume();
    await guest.send(guestFrame.output(asked, 0, 0, 1, "GET /"), guestFrame.end(asked, 5));
    await once(outside, "end");
    outside.end("200 OK");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("200 OK");
    await guest.next("STDIN_EOF");
    expect(await guest.next("RELEASE")).toMatchObject({ id: asked });
    channel.close();
  });

  test("the server outside ends first, and the client's end is noticed all the same", async () => {
    const { channel, outside } = await relay();
    outside.resume();
    outside.end("200 OK");
    expect((await guest.next("STDIN")).payload.subarray(8).toString()).toBe("200 OK");
    await guest.next("STDIN_EOF");
    await once(outside, "close");
    await guest.send(guestFrame.output(asked, 0, 0, 1, "thanks"), guestFrame.end(asked, 6));
    expect(await guest.until("RELEASE")).toMatchObject({ id: asked });
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("a server that resets ends it inside", async () => {
    const { channel, outside } = await relay();
    outside.resetAndDestroy();
    expect(await guest.next("RELEASE")).toMatchObject({ id: asked });
    channel.close();
  });

  test("a socket that the host closes without an error ends it inside", async () => {
    const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const channel = await openChannel(guest, { onEgress: async () => ({ verdict: "allowed", socket }) });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    await guest.next("VERDICT");
    socket.destroy();
    expect(await guest.next("RELEASE")).toMatchObject({ id: asked });
    channel.close();
  });

  test("a socket that was closed before it could be used is reported as unreachable", async () => {
    const socket = new Duplex({ read() {} }).destroy();
    const channel = await openChannel(guest, { onEgress: async () => ({ verdict: "allowed", socket }) });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT"))).toMatchObject({ verdict: 3 });
    await guest.hearsOnlyPing(channel);
    channel.close();
  });

  test("the end of the channel ends it outside", async () => {
    const { channel, outside } = await relay();
    outside.resume();
    channel.close();
    await once(outside, "end");
  });

  test("the death of the sandbox ends it outside", async () => {
    const { channel, outside } = await relay();
    outside.resume();
    guest.die();
    await Promise.all([channel.closed, once(outside, "end")]);
  });

  test("its id may be used again after its end", async () => {
    const { channel, outside } = await relay();
    outside.resetAndDestroy();
    await guest.next("RELEASE");
    const again = once(server, "connection");
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    expect(verdictOf(await guest.next("VERDICT"))).toMatchObject({ verdict: 0 });
    await again;
    channel.close();
  });

  test("a guest cannot have more of them than it can have streams", async () => {
    const sockets: Duplex[] = [];
    const onEgress = async (): Promise<EgressAnswer> => {
      const socket = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
      sockets.push(socket);
      return { verdict: "allowed", socket };
    };
    const channel = await openChannel(guest, { onEgress });
    const perRound = 64;
    for (let first = 0; first < protocolConstants.MAX_STREAMS; first += perRound) {
      const ids = Array.from({ length: perRound }, (_, index) => asked + first + index);
      await guest.send(...ids.map((id) => guestFrame.connect(id, "example.org", 443)));
      for (const _ of ids) await guest.next("VERDICT");
    }
    await guest.hearsOnlyPing(channel);
    await guest.send(guestFrame.connect(asked + protocolConstants.MAX_STREAMS, "example.org", 443));
    expect(await channel.closed).toMatchObject({ code: "guest_violation" });
    await expect.poll(() => sockets.every((socket) => socket.destroyed)).toBe(true);
  });
});

describe("a late answer", () => {
  async function askWithoutAnswer(): Promise<{ channel: GuestChannel; answer: (answer: EgressAnswer) => void }> {
    let answer: (answer: EgressAnswer) => void = () => undefined;
    const isAsked = new Promise<void>((resolve) => {
      guestIsAsked = resolve;
    });
    const onEgress: EgressHandler = () =>
      new Promise((resolve) => {
        answer = resolve;
        guestIsAsked();
      });
    const channel = await openChannel(guest, { onEgress });
    await guest.send(guestFrame.connect(asked, "example.org", 443));
    await isAsked;
    return { channel, answer };
  }
  let guestIsAsked: () => void = () => undefined;

  test("after the end of the channel the socket is not kept", async () => {
    const { channel, answer } = await askWithoutAnswer();
    channel.close();
    const socket = new Duplex({ read() {} });
    answer({ verdict: "allowed", socket });
    await once(socket, "close");
  });

  test("after a greeting no verdict is sent, because the guest has dropped the request", async () => {
    const { channel, answer } = await askWithoutAnswer();
    const greeted = channel.greet(new AbortController().signal);
    await guest.greet({ entries: [{ id: asked, kind: 3, state: 3 }] });
    await greeted;
    expect(await guest.next("RELEASE")).toMatchObject({ id: asked });
    const socket = new Duplex({ read() {} });
    answer({ verdict: "allowed", socket });
    await once(socket, "close");
    await guest.hearsOnlyPing(channel);
    channel.close();
  });
});
