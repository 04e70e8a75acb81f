import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { exchange } from "../src/environment/node-exchange.ts";
import { exchangeOver, readText, type Exchange } from "../src/http/exchange.ts";

const kinds: { kind: string; exchange: Exchange }[] = [
  { kind: "Node's client", exchange },
  { kind: "fetch", exchange: exchangeOver(fetch) },
];

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

async function serve(answer: RequestListener): Promise<string> {
  server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

/** A stream of pieces of 64 KiB; `given` returns how many were asked for. */
function pieces(count: number): { stream: ReadableStream<Uint8Array>; given: () => number } {
  let given = 0;
  const stream = ReadableStream.from(
    (async function* () {
      while (given < count) {
        given += 1;
        yield new Uint8Array(65_536);
      }
    })(),
  );
  return { stream, given: () => given };
}

describe.each(kinds)("over $kind", ({ exchange }) => {
  const get = (url: string, signal?: AbortSignal) =>
    exchange(url, { method: "GET", headers: {}, ...(signal === undefined ? {} : { signal }) });

  test("method, headers and text of a request arrive, and status, headers and text of its answer", async () => {
    const url = await serve((request, response) => {
      void (async () => {
        const sent = (await request.toArray()).join("");
        response.writeHead(418, { "retry-after": "7" });
        response.end(
          `${request.method} ${String(request.headers["x-one"])} ${String(request.headers["content-length"])} ${sent}`,
        );
      })();
    });
    const answer = await exchange(url, { method: "POST", headers: { "x-one": "1" }, body: "ü" });
    expect([answer.status, answer.header("Retry-After"), answer.header("x-none"), answer.url]).toEqual([
      418,
      "7",
      undefined,
      url,
    ]);
    expect(await readText(answer.body)).toBe("POST 1 2 ü");
  });

  test.each([
    ["text", "12345"],
    ["bytes", new Uint8Array([1, 2, 3, 4, 5])],
    ["a buffer", new Uint8Array([1, 2, 3, 4, 5]).buffer],
    ["a blob", new Blob(["12345"])],
  ])("a body that is %s declares its length", async (_, body) => {
    const url = await serve((request, response) => {
      void (async () => {
        const { length } = Buffer.concat(await request.toArray());
        response.end(`${String(request.headers["content-length"])} ${length}`);
      })();
    });
    expect(await readText((await exchange(url, { method: "PUT", headers: {}, body })).body)).toBe("5 5");
  });

  test("a stream is sent to its end", async () => {
    const url = await serve((request, response) => {
      void (async () => response.end(String(Buffer.concat(await request.toArray()).length)))();
    });
    const answer = await exchange(url, { method: "PUT", headers: {}, body: pieces(40).stream });
    expect(await readText(answer.body)).toBe(String(40 * 65_536));
  });

  test("the cause of the error is that there is no server", async () => {
    const url = await serve(() => undefined);
    server?.close();
    await expect(get(url)).rejects.toMatchObject({ cause: { code: "ECONNREFUSED" } });
  });

  test("a request fails when the source of its body does", async () => {
    const url = await serve((request) => void request.resume());
    const broken = ReadableStream.from(
      (async function* () {
        yield new Uint8Array(10);
        throw new Error("the disk is gone");
      })(),
    );
    await expect(exchange(url, { method: "PUT", headers: {}, body: broken })).rejects.toSatisfy((error: Error) =>
      [error.message, (error.cause as Error | undefined)?.message].includes("the disk is gone"),
    );
  });

  test("an answer that breaks off is an error", async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    });
    const { body } = await get(url);
    await expect(readText(body)).rejects.toThrow(/aborted|terminated/);
  });

  test("a large answer arrives whole, however slowly it is read", async () => {
    const bytes = Buffer.alloc(3_000_000, "0123456789");
    const url = await serve((_request, response) => void response.end(bytes));
    const { body } = await get(url);
    const read: Uint8Array[] = [];
    for (let piece = await body.read(); piece !== undefined; piece = await body.read()) {
      read.push(piece);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(Buffer.concat(read).equals(bytes)).toBe(true);
  });

  test("an abort before or within an answer ends the waiting", async () => {
    const url = await serve((_request, response) => void response.write("first"));
    const stop = new AbortController();
    const reading = readText((await get(url, stop.signal)).body);
    stop.abort();
    await expect(reading).rejects.toThrow("abort");
    await expect(get(url, stop.signal)).rejects.toThrow("abort");
  });

  test("the connection is closed when the reader of an answer leaves", async () => {
    let onClose: (() => void) | undefined;
    const closed = new Promise<void>((resolve) => {
      onClose = resolve;
    });
    const url = await serve((_request, response) => {
      response.on("close", () => onClose?.());
      response.write("first");
    });
    const { body } = await get(url);
    await body.cancel();
    await closed;
  });
});

describe("with Node's client only", () => {
  test("an address of IPv6 is reached", async () => {
    server = createServer((_request, response) => void response.end("six")).listen(0, "::1");
    await once(server, "listening");
    const url = `http://[::1]:${(server.address() as AddressInfo).port}/`;
    expect(await readText((await exchange(url, { method: "GET", headers: {} })).body)).toBe("six");
  });

  test("https uses TLS, and refuses a server without it", async () => {
    const url = await serve((_request, response) => void response.end("plain"));
    await expect(exchange(url.replace("http:", "https:"), { method: "GET", headers: {} })).rejects.toMatchObject({
      cause: { code: expect.stringMatching(/SSL|EPROTO|ECONNRESET/) as string },
    });
  });

  test("an abort during an upload ends it, and cancels its source", async () => {
    const stop = new AbortController();
    const url = await serve((request) => void request.once("data", () => stop.abort()));
    const { stream, isLeft } = endless();
    const asked = exchange(url, { method: "PUT", headers: {}, body: stream, signal: stop.signal });
    await expect(asked).rejects.toSatisfy((error: Error) => /abort/.test(`${error.message} ${String(error.cause)}`));
    await isLeft;
  });

  test("a refusal in the middle of an upload is the answer", async () => {
    const url = await serve((request, response) => {
      request.once("data", () => response.writeHead(413).end("too much"));
    });
    const { stream } = endless();
    const answer = await exchange(url, { method: "PUT", headers: {}, body: stream });
    expect([answer.status, await readText(answer.body)]).toEqual([413, "too much"]);
  });

  test("a connection that breaks when it is used again is an error, and the next request uses another", async () => {
    let requests = 0;
    const url = await serve((request, response) => {
      requests += 1;
      if (requests === 2) request.socket.resetAndDestroy();
      else response.end("said");
    });
    const ask = async () => readText((await exchange(url, { method: "POST", headers: {}, body: "x" })).body);
    expect(await ask()).toBe("said");
    await expect(ask()).rejects.toMatchObject({ cause: expect.any(Error) as Error });
    expect(await ask()).toBe("said");
  });
});

/** A stream that never ends; `isLeft` resolves when it is cancelled. */
function endless(): { stream: ReadableStream<Uint8Array>; isLeft: Promise<void> } {
  let leave = (): void => undefined;
  const isLeft = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const stream = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      // This gives other work a turn.
      await new Promise((resolve) => setImmediate(resolve));
      controller.enqueue(new Uint8Array(65_536));
    },
    cancel: () => leave(),
  });
  return { stream, isLeft };
}

test("an answer that comes before the end of its request ends the request too", async () => {
  let connection: Socket | undefined;
  const url = await serve((request, response) => {
    connection = request.socket;
    response.end("enough");
  });
  const { stream, isLeft } = endless();
  expect(await readText((await exchange(url, { method: "PUT", headers: {}, body: stream })).body)).toBe("enough");
  await isLeft;
  await expect.poll(() => connection?.destroyed).toBe(true);
});

test("the next request uses the connection of an answer that was read to its end", async () => {
  const connections = new Set<unknown>();
  const url = await serve((request, response) => {
    connections.add(request.socket);
    response.end("said");
  });
  for (let count = 0; count < 3; count++) {
    const { body } = await exchange(url, { method: "GET", headers: {} });
    expect(await readText(body)).toBe("said");
    await body.cancel();
  }
  expect(connections.size).toBe(1);
});
