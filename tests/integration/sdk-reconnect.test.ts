import { Atoll, Sandbox, type OutputEvent } from "@atoll/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { environment } from "../../packages/sdk/src/environment/node.ts";
import { cutAfterOutput, cutBody, faulty, type Faults } from "../../packages/sdk/test/support/faulty-connection.ts";
import { assertWhole, recorded, recordedBytes, textOf } from "../../packages/sdk/test/support/recorded-stream.ts";
import { freePort } from "../support/free-port.ts";
import { startTestServer, startTestServerProcess, type TestServer } from "../support/test-server.ts";

/** A command that prints the recorded output. The pauses split it into pieces. */
const recordedLine = `${recorded
  .map(({ stream, text }) => `printf '${text.replace("\n", "\\n")}'${stream === "stderr" ? " >&2" : ""}`)
  .join("; sleep 0.01; ")}; exit 7`;

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

async function attach(options: {
  faults?: () => Faults;
  fetch?: typeof fetch;
  id?: string;
}): Promise<{ client: Atoll; sandbox: Sandbox }> {
  const { faults = () => ({}) } = options;
  const webSocket = faulty((url) => environment.openWebSocket(url), faults);
  const client = new Atoll({ baseUrl: server.url, apiKey: server.key, webSocket, fetch: options.fetch });
  return { client, sandbox: await Sandbox.connect(options.id ?? sandboxId, { client }) };
}

async function read(events: AsyncIterable<OutputEvent>): Promise<OutputEvent[]> {
  const all: OutputEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

test("a stream of the server is complete wherever its connection breaks", async () => {
  for (let cutAt = 0; cutAt <= recordedBytes; cutAt += 1) {
    const cuts = [cutAfterOutput(cutAt)];
    const { client, sandbox } = await attach({ faults: () => cuts.pop() ?? {} });
    const events = await read(await sandbox.commands.run(recordedLine, { background: true }));
    expect(assertWhole(events)).toEqual({ stdout: textOf("stdout"), stderr: textOf("stderr") });
    expect(events.at(-1)).toMatchObject({ command: { exitCode: 7 } });
    client.close();
  }
});

test("a stream from gVisor is complete for readers whose connections break at each of its bytes", async () => {
  const { client } = await attach({});
  const { id, commands } = await Sandbox.create({ client, driver: "gvisor" });
  const command = await commands.run(`read go; ${recordedLine}`, { background: true, stdin: true });
  const readers = await Promise.all(
    Array.from({ length: recordedBytes + 1 }, async (_, cutAt) => {
      const cuts = [cutAfterOutput(cutAt)];
      const reader = await attach({ id, faults: () => cuts.pop() ?? {} });
      return { ...reader, events: read(await reader.sandbox.commands.connect(command.id)) };
    }),
  );
  await commands.sendStdin(command.id, "go\n");
  for (const reader of readers) {
    const events = await reader.events;
    expect(assertWhole(events)).toEqual({ stdout: textOf("stdout"), stderr: textOf("stderr") });
    expect(events.at(-1)).toMatchObject({ command: { exitCode: 7 } });
    reader.client.close();
  }
  client.close();
});

test("a run whose response breaks off is complete and runs once", async () => {
  for (const cutAt of [0, 1, 100, 500, 600, 650, 700, 750, 800, 900, 1000, 1100]) {
    const name = `run-${cutAt}`;
    const { client, sandbox } = await attach({ fetch: cutBody(fetch, "ndjson", cutAt) });
    const result = await sandbox.commands.run(recordedLine, { name });
    expect(result).toMatchObject({ exitCode: 7, stdout: textOf("stdout"), stderr: textOf("stderr") });
    expect((await sandbox.commands.list()).filter((command) => command.name === name)).toHaveLength(1);
    client.close();
  }
});

test("input arrives once and in order wherever the connection breaks", async () => {
  const pieces = ["one ", "two ", "three ", "four ", "five"];
  for (const direction of ["onSend", "onReceive"] as const) {
    for (let cutAt = 0; cutAt < 12; cutAt += 1) {
      let left = cutAt;
      const countdown = () => {
        left -= 1;
        return left === -1 ? "cut" : "pass";
      };
      const { client, sandbox } = await attach({ faults: () => ({ [direction]: countdown }) });
      const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
      const result = cat.wait();
      await Promise.all(pieces.map((piece) => cat.sendStdin(piece)));
      await cat.closeStdin();
      expect((await result).stdout).toBe(pieces.join(""));
      client.close();
    }
  }
});

test("missing bytes of the log are reported, and the rest has the right offsets", async () => {
  const { client, sandbox } = await attach({});
  const { id } = await sandbox.commands.run("head -c 1000000 /dev/zero | tr '\\0' x; printf end", { logBytes: 65_536 });
  const events = await read(await sandbox.commands.connect(id));
  const dropped = events.flatMap((event) => (event.type === "dropped" ? [event] : []));
  const kept = events.flatMap((event) => (event.type === "stdout" ? [event] : []));
  const droppedBytes = dropped.reduce((sum, { bytes }) => sum + bytes, 0);
  const keptBytes = kept.reduce((sum, { data }) => sum + data.length, 0);
  expect(droppedBytes).toBeGreaterThan(900_000);
  expect(droppedBytes + keptBytes).toBe(1_000_003);
  expect(kept.at(-1)?.text.endsWith("end")).toBe(true);
  expect((await (await sandbox.commands.connect(id)).wait()).droppedBytes).toBe(droppedBytes);
  client.close();
});

test("readers, writers and runs do not notice that the server was killed and restarted", async () => {
  const port = String(await freePort());
  let running = await startTestServerProcess({ flags: ["--port", port] });
  await using _ = { [Symbol.asyncDispose]: () => running.dispose() };
  const client = new Atoll({ baseUrl: running.url, apiKey: running.key });
  const sandbox = await Sandbox.create({ client, driver: "local" });
  const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
  await cat.sendStdin("before ");
  const result = cat.wait();
  const counted = sandbox.commands.run("for i in $(seq 300); do echo line $i; sleep 0.01; done; exit 5");
  await running.signal("SIGKILL");
  const written = cat.sendStdin("during ");
  running = await startTestServerProcess({ dataDir: running.dataDir, flags: ["--port", port] });
  await written;
  await cat.sendStdin("after");
  await cat.closeStdin();
  expect((await result).stdout).toBe("before during after");
  const lines = Array.from({ length: 300 }, (_, index) => `line ${index + 1}\n`).join("");
  expect(await counted).toMatchObject({ exitCode: 5, stdout: lines });
  client.close();
});

test("a stream of a rate-limited key starts as soon as the key may make requests again", async () => {
  const admin = new Atoll({ baseUrl: server.url, apiKey: server.key });
  const limits = { ownOnly: false, requestsPerMinute: 60 };
  const { secret, key } = await admin.keys.create({ name: "hasty", verbs: ["read", "events"], ...limits });
  const headers = { authorization: `Bearer ${secret}` };
  let status = 200;
  while (status === 200) ({ status } = await fetch(`${server.url}/sandboxes`, { headers }));
  expect(status).toBe(429);
  const client = new Atoll({ baseUrl: server.url, apiKey: secret });
  const events = client.events({ cursor: 0 });
  expect((await events.next()).value).toMatchObject({ cursor: expect.any(Number) as number });
  await events.return();
  client.close();
  await admin.keys.revoke(key.id);
});
