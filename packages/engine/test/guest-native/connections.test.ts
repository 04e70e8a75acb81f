import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

/** A server on the loopback, like a program inside: a guest without a sandbox shares our network. */
class Listener implements AsyncDisposable {
  readonly sockets: Socket[] = [];
  #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(onConnection: (socket: Socket) => void, host = "127.0.0.1"): Promise<Listener> {
    const server = createServer({ allowHalfOpen: true });
    const listener = new Listener(server);
    server.on("connection", (socket) => {
      listener.sockets.push(socket);
      socket.on("error", () => undefined);
      onConnection(socket);
    });
    server.listen(0, host);
    await once(server, "listening");
    return listener;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    this.#server.close();
  }
}

function dial(guest: NativeGuest, port: number, { family = 4, window = 0 } = {}): number {
  const id = guest.nextId();
  guest.stream(id);
  guest.send("DIAL", id, new PayloadWriter().u16(port).u8(family).u32(window).finish());
  return id;
}

describe("DIAL", { timeout: testTimeoutMs }, () => {
  test("bytes pass both ways, and so do the ends", async () => {
    await using server = await Listener.start((socket) => {
      socket.pipe(socket);
    });
    await using guest = await NativeGuest.start();
    const id = dial(guest, server.port);
    const data = randomBytes(3_000_000);
    await guest.feed(id, data);
    const stream = guest.stream(id);
    await guest.until(() => stream.endAt !== undefined);
    expect(stream.pid).toBe(0);
    expect(stream.stdout.equals(data)).toBe(true);
    expect((await guest.hello())[0]).toMatchObject({
      kind: "dialled",
      state: "exited",
      outputEnded: true,
      inputClosed: true,
    });
    guest.send("RELEASE", id);
    expect(await guest.hello()).toEqual([]);
  });

  test("the end of one side does not end the other", async () => {
    await using server = await Listener.start((socket) => {
      socket.end("hello");
    });
    await using guest = await NativeGuest.start();
    const id = dial(guest, server.port);
    await guest.until(() => guest.stream(id).endAt === 5);
    let heard = "";
    server.sockets[0]?.on("data", (data) => (heard += data.toString()));
    guest.stdin(id, 0, "still here");
    await expect.poll(() => heard).toBe("still here");
    expect((await guest.hello())[0]).toMatchObject({ state: "living", outputEnded: true, inputClosed: false });
  });

  test("::1 is another address than 127.0.0.1", async () => {
    await using server = await Listener.start((socket) => socket.end("six"), "::1");
    await using guest = await NativeGuest.start();
    const six = dial(guest, server.port, { family: 6 });
    const four = dial(guest, server.port, { family: 4 });
    await guest.until(() => guest.stream(six).endAt === 3 && guest.stream(four).failed !== undefined);
    expect(guest.stream(four).failed).toMatchObject({ errno: 111 });
  });

  test.for([
    [1, 5, 0],
    [0, 4, 0],
    [80, 4, 1_048_577],
  ])("port %i, family %i, window %i are refused", async ([port = 0, family, window]) => {
    await using guest = await NativeGuest.start();
    const id = dial(guest, port, { family, window });
    await guest.until(() => guest.stream(id).failed !== undefined);
    expect(guest.stream(id).failed).toMatchObject({ errno: 22 });
  });

  test("a window that is full makes the peer wait", async () => {
    await using server = await Listener.start((socket) => socket.end(Buffer.alloc(20_000_000)));
    await using guest = await NativeGuest.start();
    guest.acknowledges = false;
    const id = dial(guest, server.port, { window: 10_000 });
    const stream = guest.stream(id);
    stream.keepsOutput = false;
    await guest.until(() => stream.at === 10_000);
    await guest.settle();
    expect(stream.at).toBe(10_000);
    guest.acknowledges = true;
    guest.sendPosition("ACK", id, stream.at);
    await guest.until(() => stream.endAt === 20_000_000);
  });

  test("a reset by the peer ends both sides", async () => {
    await using server = await Listener.start((socket) => {
      socket.write("x");
    });
    await using guest = await NativeGuest.start();
    const id = dial(guest, server.port);
    await guest.until(() => guest.stream(id).at === 1);
    server.sockets[0]?.resetAndDestroy();
    await guest.until(() => guest.stream(id).endAt === 1 && guest.stream(id).stdinClosedAt === 0);
  });

  test("RELEASE closes it", async () => {
    await using server = await Listener.start((socket) => {
      socket.resume();
    });
    await using guest = await NativeGuest.start();
    const id = dial(guest, server.port);
    await guest.until(() => guest.stream(id).pid === 0);
    await expect.poll(() => server.sockets.length).toBe(1);
    const [socket] = server.sockets;
    if (socket === undefined) throw new Error("There was no connection");
    const ended = once(socket, "end");
    guest.send("RELEASE", id);
    await ended;
  });

  test("a connection continues with the next host", async () => {
    await using server = await Listener.start((socket) => {
      socket.pipe(socket);
    });
    await using guest = await NativeGuest.start();
    const id = dial(guest, server.port);
    guest.stdin(id, 0, "one");
    const stream = guest.stream(id);
    await guest.until(() => stream.at === 3);
    const [entry] = await guest.hello();
    expect(entry).toMatchObject({ kind: "dialled", state: "living", inputReceived: 3, inputHandedOn: 3 });
    guest.sendPosition("ATTACH", id, 3);
    guest.stdin(id, 3, "two");
    await guest.until(() => stream.stdout.toString() === "onetwo");
  });
});
