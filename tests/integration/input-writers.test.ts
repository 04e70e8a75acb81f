import { Atoll, Sandbox } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { environment } from "../../packages/sdk/src/environment/node.ts";
import { faulty, type Faults } from "../../packages/sdk/test/support/faulty-connection.ts";
import { ApiClient } from "../support/api-client.ts";
import { freePort } from "../support/free-port.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let sandboxId: string;

beforeAll(async () => {
  server = await startTestServer();
  const client = new Atoll({ baseUrl: server.url, apiKey: server.key });
  sandboxId = (await Sandbox.create({ client, driver: "local" })).id;
});

afterAll(async () => {
  await server?.dispose();
});

function connect(faults: () => Faults = () => ({}), to: { url: string; key: string } = server): Atoll {
  const webSocket = faulty((url) => environment.openWebSocket(url), faults);
  return new Atoll({ baseUrl: to.url, apiKey: to.key, webSocket });
}

/** Breaks each connection after this number of messages. */
function breaking(every: number): () => Faults {
  return () => {
    let left = every;
    const countdown = (): "cut" | "pass" => ((left -= 1) < 0 ? "cut" : "pass");
    return { onSend: countdown, onReceive: countdown };
  };
}

const linesOf = (name: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${name} ${index} ${"x".repeat(index % 50)}\n`);

/** Returns the lines of the output that this writer wrote. */
const of = (output: string, name: string): string[] =>
  output.split(/(?<=\n)/).filter((line) => line.startsWith(`${name} `));

test("clients that write at the same time over breaking connections lose, double and reorder no byte", async () => {
  const owner = connect();
  const started = await (
    await Sandbox.connect(sandboxId, { client: owner })
  ).commands.run("cat", {
    background: true,
    stdin: true,
  });
  const result = started.wait();
  const clients = [connect(breaking(9)), connect(breaking(13)), owner];
  await Promise.all(
    ["ann", "bob", "cyd"].map(async (name, index) => {
      const sandbox = await Sandbox.connect(sandboxId, { client: clients[index] });
      const handle = await sandbox.commands.connect(started.id);
      for (const line of linesOf(name, 60)) await handle.sendStdin(line);
    }),
  );
  await started.closeStdin();
  const { stdout } = await result;
  for (const name of ["ann", "bob", "cyd"]) expect(of(stdout, name)).toEqual(linesOf(name, 60));
  expect(stdout).toHaveLength(["ann", "bob", "cyd"].flatMap((name) => linesOf(name, 60)).join("").length);
  for (const client of clients) client.close();
});

test("over HTTP a writer's input is accepted once, and another writer's input is no retry of it", async () => {
  const api = new ApiClient(server.url, server.key);
  const { id } = await api.start(sandboxId, { argv: ["cat"], stdin: true });
  const path = `/sandboxes/${sandboxId}/commands/${id}`;
  const send = async (writer: string, offset: number, body: string): Promise<unknown> =>
    (await api.fetch("POST", `${path}/stdin?writer=${writer}&offset=${offset}`, { body })).json();
  expect(await send("ann", 0, "one ")).toEqual({ stdinBytes: 4, writerBytes: 4 });
  expect(await send("bob", 0, "two ")).toEqual({ stdinBytes: 8, writerBytes: 4 });
  expect(await send("ann", 0, "one ")).toEqual({ stdinBytes: 8, writerBytes: 4 });
  expect(await send("bob", 4, "three")).toEqual({ stdinBytes: 13, writerBytes: 9 });
  expect(await send("ann", 5, "lost")).toMatchObject({
    error: { code: "invalid_argument", details: { writerBytes: 4 } },
  });
  expect(await send("no%20name", 0, "x")).toMatchObject({ error: { details: { field: "writer" } } });
  expect((await api.ask("DELETE", `${path}/stdin?writer=ann&offset=4`)).body).toEqual({
    stdinBytes: 13,
    writerBytes: 4,
  });
  const { body } = await api.ask("GET", `${path}/wait`);
  expect(body).toMatchObject({ state: "exited", exitCode: 0, stdoutBytes: 13 });
});

test("two writers continue where each of them was after the server was killed and restarted", async () => {
  const port = String(await freePort());
  let running = await startTestServerProcess({ flags: ["--port", port] });
  await using _ = { [Symbol.asyncDispose]: () => running.dispose() };
  const clients = [connect(undefined, running), connect(undefined, running)];
  const owner = new Atoll({ baseUrl: running.url, apiKey: running.key });
  const sandbox = await Sandbox.create({ client: owner, driver: "local" });
  const started = await sandbox.commands.run("cat", { background: true, stdin: true });
  const result = started.wait();
  let sent = 0;
  let onHalf: () => void = () => undefined;
  const half = new Promise<void>((resolve) => {
    onHalf = resolve;
  });
  const writing = Promise.all(
    ["ann", "bob"].map(async (name, index) => {
      const theirs = await Sandbox.connect(sandbox.id, { client: clients[index] });
      const handle = await theirs.commands.connect(started.id);
      const pieces = linesOf(name, 200).map((line) => {
        const accepted = handle.sendStdin(line);
        return accepted.then(() => {
          sent += 1;
          if (sent === 100) onHalf();
        });
      });
      await Promise.all(pieces);
    }),
  );
  await half;
  await running.signal("SIGKILL");
  running = await startTestServerProcess({ dataDir: running.dataDir, flags: ["--port", port] });
  await writing;
  await started.closeStdin();
  const { stdout } = await result;
  for (const name of ["ann", "bob"]) expect(of(stdout, name)).toEqual(linesOf(name, 200));
  for (const client of [...clients, owner]) client.close();
});

test("the next server knows the writers of an ended command", async () => {
  const port = String(await freePort());
  let running = await startTestServerProcess({ flags: ["--port", port] });
  await using _ = { [Symbol.asyncDispose]: () => running.dispose() };
  const api = new ApiClient(running.url, running.key);
  let isDeaf = false;
  const client = connect(() => ({ onReceive: () => (isDeaf ? "cut" : "pass") }), running);
  const sandbox = await Sandbox.create({ client, driver: "local" });
  const started = await sandbox.commands.run("cat", { background: true, stdin: true });
  const path = `/sandboxes/${sandbox.id}/commands/${started.id}`;
  await started.sendStdin("from the SDK ");
  isDeaf = true;
  await api.fetch("POST", `${path}/stdin?writer=ann&offset=0`, { body: "ann" });
  await api.fetch("DELETE", `${path}/stdin`);
  expect((await api.ask("GET", `${path}/wait`)).body).toMatchObject({ state: "exited" });
  await running.signal("SIGKILL");
  // A client that missed the reply closes the input again.
  const closing = started.closeStdin();
  isDeaf = false;
  running = await startTestServerProcess({ dataDir: running.dataDir, flags: ["--port", port] });
  await closing;
  const again = await api.fetch("POST", `${path}/stdin?writer=ann&offset=0`, { body: "ann" });
  expect(await again.json()).toEqual({ stdinBytes: 16, writerBytes: 3 });
  const more = await api.fetch("POST", `${path}/stdin?writer=ann&offset=0`, { body: "ann?" });
  expect(await more.json()).toMatchObject({ error: { code: "invalid_state" } });
  expect((await started.wait()).stdout).toBe("from the SDK ann");
  client.close();
});

test("a writer continues where it was after its sandbox was paused and the server was killed", async () => {
  const port = String(await freePort());
  let running = await startTestServerProcess({ flags: ["--port", port] });
  await using _ = { [Symbol.asyncDispose]: () => running.dispose() };
  const client = connect(undefined, running);
  const sandbox = await Sandbox.create({ client, driver: "gvisor" });
  const started = await sandbox.commands.run("cat", { background: true, stdin: true });
  const result = started.wait();
  await started.sendStdin("before ");
  await sandbox.pause();
  await running.signal("SIGKILL");
  running = await startTestServerProcess({ dataDir: running.dataDir, flags: ["--port", port] });
  await started.sendStdin("after");
  await started.closeStdin();
  expect((await result).stdout).toBe("before after");
  client.close();
});
