import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest } from "./native-guest.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const verdicts = { allowed: 0, refused: 1, unknownName: 2, unreachable: 3, timedOut: 4 } as const;

/** Starts a guest with its proxy on a port that was free just before. */
async function startProxy(): Promise<{ guest: NativeGuest; port: number }> {
  const guest = await NativeGuest.start();
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  expect(await guest.ask("PROXY", new PayloadWriter().u16(port).finish())).toMatchObject({ type: "done" });
  return { guest, port };
}

/** A program inside that uses the proxy. */
class Client {
  static open(port: number, ...sent: (string | Buffer)[]): Client {
    return new Client(port, ...sent);
  }

  heard = Buffer.alloc(0);
  hasEnded = false;
  socket: Socket;

  private constructor(port: number, ...sent: (string | Buffer)[]) {
    this.socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    this.socket.on("data", (data) => (this.heard = Buffer.concat([this.heard, data])));
    this.socket.on("end", () => (this.hasEnded = true));
    this.socket.on("error", () => (this.hasEnded = true));
    for (const piece of sent) this.socket.write(piece);
  }

  get text(): string {
    return this.heard.toString("latin1");
  }
}

async function nextAsked(guest: NativeGuest, before = 0): Promise<number> {
  await guest.until(() => guest.asked.length > before);
  return guest.asked.at(-1) ?? 0;
}

function decide(guest: NativeGuest, id: number, verdict: number, reason = ""): void {
  guest.send("VERDICT", id, new PayloadWriter().u8(verdict).str(reason).finish());
}

describe("HTTP", { timeout: testTimeoutMs }, () => {
  test("CONNECT asks the host by name; an allowed one is a tunnel, with what the client sent early", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, "CONNECT Example.org:8443 HTTP/1.1\r\nHost: x\r\n\r\nearly");
    const id = await nextAsked(guest);
    expect(guest.stream(id).asked).toMatchObject({ protocol: "http-connect", host: "Example.org", port: 8443 });
    expect(id).toBeGreaterThanOrEqual(0x8000_0000);
    decide(guest, id, verdicts.allowed);
    await guest.until(() => guest.stream(id).stdout.toString() === "early");
    guest.stdin(id, 0, "answer");
    await expect.poll(() => client.text).toBe("HTTP/1.1 200 Connection established\r\n\r\nanswer");
    client.socket.end();
    await guest.until(() => guest.stream(id).endAt === 5);
    guest.sendPosition("STDIN_EOF", id, 6);
    await expect.poll(() => client.hasEnded).toBe(true);
  });

  test("an absolute request is passed on in the form that servers expect", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const fields =
      "Host: lie\r\nproxy-connection: keep-alive\r\nConnection: keep-alive\r\nProxy-Authorization: s\r\nX: y\r\n";
    const client = Client.open(
      port,
      `POST http://Host.example:81/a?b=c HTTP/1.1\r\n${fields}Content-Length: 4\r\n\r\nbody`,
    );
    const id = await nextAsked(guest);
    expect(guest.stream(id).asked).toMatchObject({ protocol: "http", host: "Host.example", port: 81 });
    decide(guest, id, verdicts.allowed);
    const rewritten =
      "POST /a?b=c HTTP/1.1\r\nHost: Host.example:81\r\nConnection: close\r\nX: y\r\nContent-Length: 4\r\n\r\nbody";
    await guest.until(() => guest.stream(id).at >= rewritten.length);
    expect(guest.stream(id).stdout.toString()).toBe(rewritten);
    guest.stdin(id, 0, "HTTP/1.1 204 No Content\r\n\r\n");
    await expect.poll(() => client.text).toBe("HTTP/1.1 204 No Content\r\n\r\n");
  });

  test.for([
    [
      "GET http://a.example HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
      "a.example",
      80,
    ],
    ["GET HTTP://a?q HTTP/1.0\n\n", "GET /?q HTTP/1.0\r\nHost: a\r\nConnection: close\r\n\r\n", "a", 80],
    ["GET http://[::1]:8/ HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: [::1]:8\r\nConnection: close\r\n\r\n", "::1", 8],
  ] as const)("%j becomes %j", async ([request, rewritten, host, wantedPort]) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    Client.open(port, request);
    const id = await nextAsked(guest);
    expect(guest.stream(id).asked).toMatchObject({ host, port: wantedPort });
    decide(guest, id, verdicts.allowed);
    await guest.until(() => guest.stream(id).stdout.toString() === rewritten);
  });

  test.for([
    ["refused", 403, "is not allowed"],
    ["unknownName", 502, "the name is unknown"],
    ["unreachable", 502, "cannot be reached"],
    ["timedOut", 504, "did not answer in time"],
  ] as const)("a connection that is %s is answered with %i and the reason", async ([verdict, status, text]) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, "CONNECT no.example:443 HTTP/1.1\r\n\r\n");
    decide(guest, await nextAsked(guest), verdicts[verdict], "because\r\nX-Injected: 1");
    await expect.poll(() => client.hasEnded).toBe(true);
    const [head = "", body = ""] = client.text.split("\r\n\r\n");
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(head).not.toContain("Injected");
    expect(body).toContain("no.example:443");
    expect(body).toContain(text);
    expect(body.trimEnd()).toContain("because  X-Injected");
    expect(Number(/Content-Length: (\d+)/.exec(head)?.[1])).toBe(body.length);
    expect(await guest.ask("COUNT")).toMatchObject({ streams: 0 });
  });

  const bad = [
    "GET / HTTP/1.1\r\n\r\n",
    "GET https://a/ HTTP/1.1\r\n\r\n",
    "GET http://user@a/ HTTP/1.1\r\n\r\n",
    "GET http:///x HTTP/1.1\r\n\r\n",
    "GET http://a:0/ HTTP/1.1\r\n\r\n",
    "GET http://a:65536/ HTTP/1.1\r\n\r\n",
    "GET http://a b/ HTTP/1.1\r\n\r\n",
    "GET http://a/ HTTP/2\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\nX: y\r\n folded: z\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\n\tfolded: z\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n",
    "GET http://a/\u0001 HTTP/1.1\r\n\r\n",
    `GET http://${"a".repeat(256)}/ HTTP/1.1\r\n\r\n`,
    "CONNECT a HTTP/1.1\r\n\r\n",
    "CONNECT [::1:443 HTTP/1.1\r\n\r\n",
    "CONNECT ::1:443 HTTP/1.1\r\n\r\n",
    "\r\n\r\n",
    "\u0000\u0000\n\n",
  ];
  test.for(bad)("%j is refused with 400 without asking the host", async (request) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, request);
    await expect.poll(() => client.hasEnded).toBe(true);
    expect(client.text).toMatch(/^HTTP\/1.1 400 /);
    expect(guest.asked).toEqual([]);
  });

  test("a head that does not end is refused with 431", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, "GET http://a/ HTTP/1.1\r\n", `X: ${"y".repeat(20_000)}`);
    await expect.poll(() => client.hasEnded).toBe(true);
    expect(client.text).toMatch(/^HTTP\/1.1 431 /);
  });

  test("a head may come byte by byte, and be as long as is allowed", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const slow = Client.open(port);
    for (const letter of "CONNECT a:1 HTTP/1.1\r\n\r\n") {
      slow.socket.write(letter);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await nextAsked(guest);
    const lines = "a:\n".repeat(5400);
    Client.open(port, `GET http://b/ HTTP/1.1\n${lines}\n`);
    const id = await nextAsked(guest, 1);
    decide(guest, id, verdicts.allowed);
    await guest.until(() => guest.stream(id).stdout.toString().endsWith("a:\r\n\r\n"));
    expect(guest.stream(id).stdout.toString().split("a:\r\n")).toHaveLength(5401);
  });
});

describe("SOCKS5", { timeout: testTimeoutMs }, () => {
  const greeting = Buffer.from([5, 2, 2, 0]);
  const request = (...address: number[]): Buffer => Buffer.from([5, 1, 0, ...address, 0x1f, 0x90]);
  const named = request(3, 3, 0x61, 0x2e, 0x62);

  test.for([
    ["a.b", named],
    ["1.2.3.4", request(1, 1, 2, 3, 4)],
    ["2001:db8::1", request(4, 0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)],
  ] as const)("%s is asked for and relayed", async ([host, wanted]) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, greeting, wanted, "early");
    const id = await nextAsked(guest);
    expect(guest.stream(id).asked).toMatchObject({ protocol: "socks5", host, port: 8080 });
    decide(guest, id, verdicts.allowed);
    await guest.until(() => guest.stream(id).stdout.toString() === "early");
    guest.stdin(id, 0, "answer");
    await expect.poll(() => client.text).toBe("\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00answer");
  });

  test.for([
    ["refused", 2],
    ["unknownName", 4],
    ["unreachable", 5],
    ["timedOut", 6],
  ] as const)("a connection that is %s is answered with code %i", async ([verdict, code]) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, greeting, named);
    decide(guest, await nextAsked(guest), verdicts[verdict]);
    await expect.poll(() => client.hasEnded).toBe(true);
    expect([...client.heard.subarray(2, 4)]).toEqual([5, code]);
  });

  test.for([
    ["authentication only", [5, 1, 2], [5, 0xff]],
    ["BIND", [5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80], [5, 0, 5, 7]],
    ["an unknown address", [5, 1, 0, 5, 1, 0, 9, 1, 2, 3, 4, 0, 80], [5, 0, 5, 8]],
    ["port 0", [5, 1, 0, 5, 1, 0, 1, 1, 2, 3, 4, 0, 0], [5, 0, 5, 1]],
    ["an empty name", [5, 1, 0, 5, 1, 0, 3, 0, 0, 80], [5, 0, 5, 1]],
    ["a name with a blank", [5, 1, 0, 5, 1, 0, 3, 1, 32, 0, 80], [5, 0, 5, 1]],
    ["another version", [5, 1, 0, 4, 1, 0, 1, 1, 2, 3, 4, 0, 80], [5, 0, 5, 1]],
  ] as const)("%s is refused without asking the host", async ([, sent, start]) => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, Buffer.from(sent));
    await expect.poll(() => client.hasEnded).toBe(true);
    expect([...client.heard.subarray(0, start.length)]).toEqual([...start]);
    expect(guest.asked).toEqual([]);
  });
});

describe("the proxy", { timeout: testTimeoutMs }, () => {
  test("asks the next host again for what the last one did not answer", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const client = Client.open(port, "CONNECT a:1 HTTP/1.1\r\n\r\n");
    const id = await nextAsked(guest);
    expect((await guest.hello())[0]).toMatchObject({ id, kind: "asked", state: "waiting" });
    guest.sendPosition("ATTACH", id, 0);
    expect(await nextAsked(guest, 1)).toBe(id);
    guest.send("RELEASE", id);
    await expect.poll(() => client.text).toMatch(/^HTTP\/1.1 502 /);
  });

  test("serves other clients while many are slow", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const idle = Array.from({ length: 63 }, () => Client.open(port, "G"));
    await Promise.all(idle.map(({ socket }) => once(socket, "connect")));
    Client.open(port, "CONNECT a:1 HTTP/1.1\r\n\r\n");
    await nextAsked(guest);
    for (const { socket } of idle) socket.destroy();
    await guest.settle();
  });

  test("moves to another port, and a port that is taken is refused", async () => {
    const { guest, port } = await startProxy();
    await using _ = guest;
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const other = (taken.address() as AddressInfo).port;
    const ask = (): ReturnType<typeof guest.ask> => guest.ask("PROXY", new PayloadWriter().u16(other).finish());
    expect(await ask()).toMatchObject({ type: "failed", errno: 98 });
    taken.close();
    await once(taken, "close");
    expect(await ask()).toMatchObject({ type: "done" });
    Client.open(other, "CONNECT a:1 HTTP/1.1\r\n\r\n");
    await nextAsked(guest);
    const old = Client.open(port);
    await expect.poll(() => old.hasEnded).toBe(true);
  });
});
