import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { whenClosed } from "../../src/http/when-closed.ts";

const server = createServer();
beforeEach(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(() => server.close());

/** A request that is being handled, and a function with which its client leaves. */
async function asked(): Promise<{ response: ServerResponse; leave: () => void }> {
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.on("error", () => undefined);
  client.write("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  client.resume();
  const [, response] = (await once(server, "request")) as [unknown, ServerResponse];
  return { response, leave: () => client.destroy() };
}

test("the function is called at the end of a reply", async () => {
  const { response } = await asked();
  const closed = new Promise<void>((resolve) => whenClosed(response, resolve));
  response.end("done");
  await closed;
});

test("the function is called also when the client has already left", async () => {
  const { response, leave } = await asked();
  const gone = once(response, "close");
  leave();
  await gone;
  await new Promise<void>((resolve) => whenClosed(response, resolve));
  expect(response.destroyed).toBe(true);
});
