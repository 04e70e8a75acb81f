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

/** So many pieces of 64 KiB; `given` counts those that were asked for. */
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

  test("a request has its method, headers and text, and the answer its status, headers and text", async () => {
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
  ])("a body that is %s says how long it is", async (_, body) => {
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

  test("a server that is not there is told as the cause", async () => {
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

  test("an answer that breaks off is an error, not an end", async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    });
    const { body } = await get(url);
    await expect(readText(body)).rejects.toThrow(/aborted|terminated/);
  });

  test("a large answer comes whole, however slowly it is read", async () => {
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

  test("an answer is no longer waited for after an abort, before or within it", async () => {
    const url = await serve((_request, response) => void response.write("first"));
    const stop = new AbortController();
    const reading = readText((await get(url, stop.signal)).body);
    stop.abort();
    await expect(reading).rejects.toThrow("abort");
    await expect(get(url, stop.signal)).rejects.toThrow("abort");
  });

  test("an answer whose reader leaves closes the connection", async () => {
    let told: (() => void) | undefined;
    const closed = new Promise<void>((resolve) => {
      told = resolve;
    });
    const url = await serve((_request, response) => {
      response.on("close", () => told?.());
      response.write("first");
    });
    const { body } = await get(url);
    await body.cancel();
    await closed;
  });
});

describe("over Node's client alone", () => {
  test("an address of IPv6 is reached", async () => {
    server = createServer((_request, response) => void response.end("six")).listen(0, "::1");
    await once(server, "listening");
    const url = `http://[::1]:${(server.address() as AddressInfo).port}/`;
    expect(await readText((await exchange(url, { method: "GET", headers: {} })).body)).toBe("six");
  });

  test("https is spoken with TLS, and nothing else is taken for it", async () => {
    const url = await serve((_request, response) => void response.end("plain"));
    await expect(exchange(url.replace("http:", "https:"), { method: "GET", headers: {} })).rejects.toMatchObject({
      cause: { code: expect.stringMatching(/SSL|EPROTO|ECONNRESET/) as string },
    });
  });

  test("an abort during an upload ends it, and lets go of its source", async () => {
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

  test("a connection that breaks when it is used again is an error, and the next request has another", async () => {
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

/** It has always more to give; `isLeft` resolves when nobody wants it. */
function endless(): { stream: ReadableStream<Uint8Array>; isLeft: Promise<void> } {
  let leave = (): void => undefined;
  const isLeft = new Promise<void>((resolve) => {
    leave = resolve;
  });
  const stream = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      // Others have a turn too.
      await new Promise((resolve) => setImmediate(resolve));
      controller.enqueue(new Uint8Array(65_536));
    },
    cancel: () => leave(),
  });
  return { stream, isLeft };
}

test("an answer that comes before the end of the question ends the question too", async () => {
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

test("an answer of Node's client that was read to its end leaves its connection to the next request", async () => {
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
