import { Atoll, Sandbox } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, test } from "vitest";
import { exchange } from "../src/environment/node-exchange.ts";

const invalid = { code: "invalid_argument", message: expect.stringMatching(/^Cannot /) as string };

test("a key with a line break, as from a file, works", async () => {
  const { connection } = new MockServer();
  const client = new Atoll({ ...connection, apiKey: `${connection.apiKey}\n` });
  expect(await client.keys.list()).toEqual([]);
});

test.for(["one\ntwo", "schlüssel\u{1F511}"])(
  "the key %j is refused at once, and the error does not contain it",
  (apiKey) => {
    expect(() => new Atoll({ apiKey })).toThrow(expect.objectContaining(invalid));
    expect(() => new Atoll({ apiKey })).not.toThrow(apiKey);
  },
);

test.for([
  ["HTTPS://Atoll.example.com/", "https://atoll.example.com"],
  [" http://127.0.0.1:4600\n", "http://127.0.0.1:4600"],
  ["http://127.0.0.1:4600/behind/a/proxy//", "http://127.0.0.1:4600/behind/a/proxy"],
])("the address %j is understood", ([baseUrl, meant]) => {
  expect(new Atoll({ baseUrl }).connection.baseUrl).toBe(meant);
});

test.for(["localhost:4600", "ftp://example.com", "nonsense", ""])("the address %j is refused at once", (baseUrl) => {
  expect(() => new Atoll({ baseUrl })).toThrow(expect.objectContaining(invalid));
});

test("a stream with another reader is refused without a request to the server", async () => {
  const { connection } = new MockServer();
  let requests = 0;
  const counted: typeof fetch = (...request) => {
    requests += 1;
    return connection.fetch(...request);
  };
  const sandbox = await Sandbox.create({ ...connection, fetch: counted });
  const { body } = new Response("bytes");
  body?.getReader();
  await expect(sandbox.files.write("file", body ?? "")).rejects.toMatchObject(invalid);
  expect(requests).toBe(1);
});

test("an invalid request is neither reported as a failure of the connection nor retried", async () => {
  await expect(exchange("http://127.0.0.1:1", { method: "GET", headers: { "x-bad": "a\nb" } })).rejects.toMatchObject(
    invalid,
  );
  await expect(exchange("nowhere", { method: "GET", headers: {} })).rejects.toMatchObject(invalid);
  const client = new Atoll({ baseUrl: "http://127.0.0.1:1", apiKey: "any" });
  const asked = client.http.call("createSandbox", { body: {}, idempotencyKey: "a\nb" });
  await expect(asked).rejects.toMatchObject(invalid);
});

test("a byte order mark is kept", async () => {
  const mock = new MockServer();
  mock.onCommand("mark", ({ stdout }) => stdout("\uFEFFtext"));
  const sandbox = await Sandbox.create(mock.connection);
  await sandbox.files.write("file", "\uFEFFtext");
  expect(await sandbox.files.read("file")).toBe("\uFEFFtext");
  let streamed = "";
  const { stdout } = await sandbox.commands.run("mark", { onStdout: (text) => void (streamed += text) });
  expect([stdout, streamed]).toEqual(["\uFEFFtext", "\uFEFFtext"]);
});
