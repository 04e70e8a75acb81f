import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { httpFetch } from "../src/http-fetch.ts";
import { byteStream } from "../src/transfer/byte-stream.ts";

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
  const stream = byteStream(
    (async function* () {
      while (given < count) {
        given += 1;
        yield new Uint8Array(65_536);
      }
    })(),
  );
  return { stream, given: () => given };
}

describe("a request", () => {
  test("has its method, headers and text, and the answer its status, headers and text", async () => {
    const url = await serve((request, response) => {
      void (async () => {
        const sent = (await request.toArray()).join("");
        response.writeHead(418, { "retry-after": "7" });
        response.end(
          `${request.method} ${String(request.headers["x-one"])} ${String(request.headers["content-length"])} ${sent}`,
        );
      })();
    });
    const answer = await httpFetch(url, { method: "POST", headers: { "x-one": "1" }, body: "ü" });
    expect([answer.ok, answer.status, answer.headers.get("Retry-After"), answer.url]).toEqual([false, 418, "7", url]);
    expect(await answer.text()).toBe("POST 1 2 ü");
  });

  test("sends a stream to its end", async () => {
    const url = await serve((request, response) => {
      void (async () => response.end(String(Buffer.concat(await request.toArray()).length)))();
    });
    const answer = await httpFetch(url, { method: "PUT", body: pieces(40).stream });
    expect(await answer.text()).toBe(String(40 * 65_536));
  });

  test("takes no more of a stream than the server reads", async () => {
    const url = await serve((_request, response) => void response.end("enough"));
    const { stream, given } = pieces(10_000);
    expect(await (await httpFetch(url, { method: "PUT", body: stream })).text()).toBe("enough");
    expect(given()).toBeLessThan(10_000);
  });

  test("to a server that is not there fails as that of Node does", async () => {
    const url = await serve(() => undefined);
    server?.close();
    await expect(httpFetch(url)).rejects.toMatchObject({ message: "fetch failed", cause: { code: "ECONNREFUSED" } });
  });

  test("fails when a source of its body does", async () => {
    const url = await serve((request) => void request.resume());
    const broken = byteStream(
      (async function* () {
        yield new Uint8Array(10);
        throw new Error("the disk is gone");
      })(),
    );
    const sending = httpFetch(url, { method: "PUT", body: broken });
    await expect(sending).rejects.toMatchObject({ cause: { message: "the disk is gone" } });
  });
});

describe("an answer", () => {
  test("that breaks off is an error, not an end", async () => {
    const url = await serve((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    });
    await expect((await httpFetch(url)).text()).rejects.toThrow("aborted");
  });

  test("is no longer waited for after an abort, before or within it", async () => {
    const url = await serve((_request, response) => void response.write("first"));
    const stop = new AbortController();
    const reading = (await httpFetch(url, { signal: stop.signal })).text();
    stop.abort();
    await expect(reading).rejects.toThrow("abort");
    await expect(httpFetch(url, { signal: stop.signal })).rejects.toThrow("abort");
  });

  test("whose reader leaves closes the connection", async () => {
    let told: (() => void) | undefined;
    const closed = new Promise<void>((resolve) => {
      told = resolve;
    });
    const url = await serve((_request, response) => {
      response.on("close", () => told?.());
      response.write("first");
    });
    const { body } = await httpFetch(url);
    await body?.cancel();
    await closed;
  });
});
