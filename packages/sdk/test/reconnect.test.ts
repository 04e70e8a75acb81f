import { websocketProtocol } from "@atoll/protocol";
import { Atoll, Sandbox, type OutputEvent } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, onTestFinished, test, vi } from "vitest";
import { cutAfterOutput, cutBody, faulty, type Faults } from "./support/faulty-connection.ts";
import { assertWhole, recorded, recordedBytes, textOf } from "./support/recorded-stream.ts";

function makeMock(): MockServer {
  const mock = new MockServer();
  mock.onCommand("recorded", async ({ stdout, stderr }) => {
    for (const { stream, text } of recorded) {
      (stream === "stdout" ? stdout : stderr)(text);
      await Promise.resolve();
    }
    return 7;
  });
  mock.onCommand("cat", async ({ stdin, stdout }) => {
    for await (const piece of stdin) stdout(piece);
  });
  mock.onCommand("wait", ({ stdin, stdout }) => {
    stdout("before ");
    return (async () => {
      for await (const _ of stdin);
      stdout("after");
    })();
  });
  return mock;
}

async function read(events: AsyncIterable<OutputEvent>): Promise<OutputEvent[]> {
  const all: OutputEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

async function sandboxOver(mock: MockServer, faults: () => Faults): Promise<{ sandbox: Sandbox; client: Atoll }> {
  const { connection } = mock;
  const client = new Atoll({ ...connection, webSocket: faulty(connection.webSocket, faults) });
  return { sandbox: await Sandbox.create({ client }), client };
}

const boundaries = Array.from({ length: recordedBytes + 1 }, (_, index) => index);

test.for(boundaries)("a stream whose connection breaks after byte %i is whole", async (cutAt) => {
  const cuts = [cutAfterOutput(cutAt)];
  const { sandbox, client } = await sandboxOver(makeMock(), () => cuts.pop() ?? {});
  const events = await read(await sandbox.commands.run("recorded", { background: true }));
  expect(assertWhole(events)).toEqual({ stdout: textOf("stdout"), stderr: textOf("stderr") });
  expect(events.at(-1)).toMatchObject({ command: { exitCode: 7 } });
  client.close();
});

test("a stream whose connections all break after one byte is whole", async () => {
  let connections = 0;
  const { sandbox, client } = await sandboxOver(makeMock(), () => {
    connections += 1;
    return cutAfterOutput(1);
  });
  const events = await read(await sandbox.commands.run("recorded", { background: true }));
  expect(assertWhole(events)).toEqual({ stdout: textOf("stdout"), stderr: textOf("stderr") });
  expect(connections).toBe(recordedBytes);
  client.close();
});

async function runWithCut(cutAt: number): Promise<void> {
  const { connection } = makeMock();
  const client = new Atoll({ ...connection, fetch: cutBody(connection.fetch, "ndjson", cutAt) });
  const sandbox = await Sandbox.create({ client });
  const texts = { stdout: "", stderr: "" };
  const result = await sandbox.commands.run("recorded", {
    onStdout: (text) => void (texts.stdout += text),
    onStderr: (text) => void (texts.stderr += text),
  });
  expect(texts).toEqual({ stdout: textOf("stdout"), stderr: textOf("stderr") });
  expect(result).toMatchObject({ ...texts, exitCode: 7 });
  expect(await sandbox.commands.list()).toHaveLength(1);
  client.close();
}

test("a run in the foreground whose answer breaks after any byte is whole and happens once", async () => {
  const whole = makeMock();
  const { id } = await Sandbox.create(whole.connection);
  const response = await whole.connection.fetch(`${whole.connection.baseUrl}/sandboxes/${id}/commands`, {
    method: "POST",
    headers: { authorization: `Bearer ${whole.connection.apiKey}`, accept: "application/x-ndjson" },
    body: JSON.stringify({ shell: "recorded" }),
  });
  const answerBytes = (await response.arrayBuffer()).byteLength;
  expect(answerBytes).toBeGreaterThan(500);
  const everyCut = Array.from({ length: answerBytes + 1 }, (_, cutAt) => runWithCut(cutAt));
  await Promise.all(everyCut);
});

test.for(boundaries.slice(0, 24))(
  "input whose connection breaks at its message %i arrives in order and once",
  async (cutAt) => {
    const pieces = ["one ", "two ", "three ", "four ", "five"];
    for (const direction of ["onSend", "onReceive"] as const) {
      let left = cutAt;
      let isCut = false;
      const countdown = () => {
        if (isCut) return "pass";
        left -= 1;
        isCut = left < 0;
        return isCut ? "cut" : "pass";
      };
      const { sandbox, client } = await sandboxOver(makeMock(), () => ({ [direction]: countdown }));
      const cat = await sandbox.commands.run("cat", { background: true, stdin: true });
      const result = cat.wait();
      const accepted: Promise<void>[] = [];
      for (const piece of pieces) accepted.push(cat.sendStdin(piece));
      await Promise.all(accepted);
      await cat.closeStdin();
      expect((await result).stdout).toBe(pieces.join(""));
      client.close();
    }
  },
);

test("a reader, a writer and a run continue through a restart of the server", async () => {
  const mock = makeMock();
  const { connection } = mock;
  let refused = 0;
  const client = new Atoll({
    ...connection,
    fetch: async (...request) =>
      connection.fetch(...request).catch((error: unknown) => {
        refused += 1;
        // The server is back after a few attempts of the client have failed.
        if (refused === 4) mock.start();
        throw error;
      }),
  });
  const sandbox = await Sandbox.create({ client });
  const handle = await sandbox.commands.run("wait", { background: true, stdin: true });
  const events = handle[Symbol.asyncIterator]();
  expect((await events.next()).value).toMatchObject({ type: "stdout", text: "before " });
  const foreground = sandbox.commands.run("recorded");
  mock.stop();
  const written = handle.sendStdin("x");
  const info = sandbox.getInfo();
  expect((await info).state).toBe("running");
  await written;
  await handle.closeStdin();
  expect((await events.next()).value).toMatchObject({ type: "stdout", text: "after" });
  expect((await events.next()).value).toMatchObject({ type: "ended", command: { exitCode: 0, stdinBytes: 1 } });
  expect(await foreground).toMatchObject({ exitCode: 7, stdout: textOf("stdout") });
  client.close();
});

test("events and watches continue where they were when the connection broke", async () => {
  const mock = makeMock();
  const client = new Atoll(mock.connection);
  const sandbox = await Sandbox.create({ client });
  await sandbox.files.mkdir("dir");
  const watch = sandbox.files.watch("dir");
  expect((await watch.next()).value).toMatchObject({ kind: "watching" });
  const events = client.events({ cursor: 0 });
  expect((await events.next()).value).toMatchObject({ cursor: 1, type: "sandbox.state" });
  for (let round = 0; round < 5; round += 1) {
    await sandbox.files.write(`dir/${round}`, "");
    mock.disconnect();
    const { id } = await sandbox.commands.run("recorded");
    expect((await watch.next()).value).toMatchObject({ kind: "created", path: String(round) });
    expect((await watch.next()).value).toMatchObject({ kind: "written", path: String(round) });
    expect((await events.next()).value).toMatchObject({
      type: "command.started",
      commandId: id,
      cursor: 2 + 2 * round,
    });
    expect((await events.next()).value).toMatchObject({ type: "command.ended", commandId: id });
  }
  await watch.return();
  await events.return();
  client.close();
});

test("a server that stays away ends the stream with an error and a suggestion", async () => {
  const mock = makeMock();
  const client = new Atoll({ ...mock.connection, reconnectForMs: 100 });
  const sandbox = await Sandbox.create({ client });
  const handle = await sandbox.commands.run("cat", { background: true, stdin: true });
  const result = handle.wait();
  mock.stop();
  await expect(result).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringContaining("http://mock.invalid") as string,
    suggestion: expect.stringContaining("atoll up") as string,
  });
  await expect(sandbox.getInfo()).rejects.toMatchObject({ code: "unavailable" });
});

test("a key that the server does not know ends the stream at once", async () => {
  const mock = makeMock();
  const client = new Atoll(mock.connection);
  const sandbox = await Sandbox.create({ client });
  const stranger = new Atoll({ ...mock.connection, apiKey: "wrong" });
  await expect(stranger.events().next()).rejects.toMatchObject({ code: "permission_denied" });
  await expect(Sandbox.connect(sandbox.id, { client: stranger })).rejects.toMatchObject({ code: "permission_denied" });
});

test("a dead connection that was not closed is noticed and replaced", async () => {
  const mock = makeMock();
  let connections = 0;
  const { sandbox, client } = await sandboxOver(mock, () => {
    connections += 1;
    // The first connection passes the greeting and the start; after that nothing arrives.
    return connections > 1
      ? {}
      : { onReceive: (message) => (String(message).includes("welcome") ? "pass" : "swallow") };
  });
  const handle = await sandbox.commands.run("recorded", { background: true });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const result = handle.wait();
  // Advancing the timers also runs what they start.
  await vi.advanceTimersByTimeAsync(2 * websocketProtocol.heartbeatMs + 1_000);
  expect((await result).stdout).toBe(textOf("stdout"));
  expect(connections).toBe(2);
  client.close();
});

test("an idle connection that is alive is kept", async () => {
  let connections = 0;
  const { sandbox, client } = await sandboxOver(makeMock(), () => {
    connections += 1;
    return {};
  });
  const handle = await sandbox.commands.run("cat", { background: true, stdin: true });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const result = handle.wait();
  await vi.advanceTimersByTimeAsync(20 * websocketProtocol.heartbeatMs);
  await handle.closeStdin();
  expect((await result).exitCode).toBe(0);
  expect(connections).toBe(1);
  client.close();
});

test("a malformed message ends its stream with an error, and one of an unknown type is ignored", async () => {
  const { connection } = makeMock();
  const client = new Atoll({
    ...connection,
    webSocket: faulty(connection.webSocket, () => ({
      onReceive: (message) => {
        if (typeof message !== "string" || !message.includes('"ended"')) return "pass";
        return { instead: ['{"type":"news","channel":1}', message.replace('"exited"', '"vanished"')] };
      },
    })),
  });
  const sandbox = await Sandbox.create({ client });
  const handle = await sandbox.commands.run("recorded", { background: true });
  await expect(handle.wait()).rejects.toMatchObject({
    code: "internal",
    message: expect.stringContaining("state") as string,
  });
});

test.for(["<html>", '{"type":', ""])(
  "the message %j, which is not JSON, ends the stream with an error",
  async (nonsense) => {
    const { connection } = makeMock();
    const client = new Atoll({
      ...connection,
      webSocket: faulty(connection.webSocket, () => ({
        onReceive: (message) => (String(message).includes('"following"') ? { instead: [nonsense] } : "pass"),
      })),
    });
    const sandbox = await Sandbox.create({ client });
    const handle = await sandbox.commands.run("recorded", { background: true });
    await expect(handle.wait()).rejects.toMatchObject({
      code: "internal",
      message: "Cannot understand what http://mock.invalid sends: it is not JSON",
    });
  },
);
