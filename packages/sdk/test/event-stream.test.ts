import { Atoll, Sandbox } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, onTestFinished, test } from "vitest";
import { faulty, type Faults } from "./support/faulty-connection.ts";

function clientOf(mock: MockServer, faults: Faults = {}): Atoll {
  const { connection } = mock;
  const client = new Atoll({ ...connection, webSocket: faulty(connection.webSocket, () => faults) });
  onTestFinished(() => client.close());
  return client;
}

/** Resolves when the server has sent a follower its cursor `count` times. */
function places(count: number): { reached: Promise<void>; faults: Faults } {
  let left = count;
  let reach: () => void = () => undefined;
  const reached = new Promise<void>((resolve) => {
    reach = resolve;
  });
  const onReceive = (message: string | Uint8Array): "pass" => {
    if (String(message).includes('"passed"')) left -= 1;
    if (left === 0) reach();
    return "pass";
  };
  return { reached, faults: { onReceive } };
}

test("a follower without a cursor gets the events that happen while its connection is broken", async () => {
  const mock = new MockServer();
  const { reached, faults } = places(1);
  const client = clientOf(mock, faults);
  const sandbox = await Sandbox.create({ client });
  const events = client.events({ sandboxId: sandbox.id });
  const next = events.next();
  await reached;
  mock.disconnect();
  await sandbox.kill();
  expect((await next).value).toMatchObject({ type: "sandbox.state", sandboxId: sandbox.id });
  await events.return();
});

test("events that are not for a follower move its cursor", async () => {
  const mock = new MockServer();
  const { reached, faults } = places(2);
  const asked: string[] = [];
  const onSend = (message: string | Uint8Array): "pass" => {
    if (String(message).includes('"events"')) asked.push(String(message));
    return "pass";
  };
  const client = clientOf(mock, { ...faults, onSend });
  const sandbox = await Sandbox.create({ client });
  const events = client.events({ cursor: 0, sandboxId: "a".repeat(20) });
  const next = events.next();
  mock.onCommand("true", () => 0);
  for (let count = 0; count < 60; count += 1) await sandbox.commands.run("true");
  await reached;
  mock.disconnect();
  await expect.poll(() => asked).toHaveLength(2);
  expect(JSON.parse(asked[1] ?? "")).toMatchObject({ cursor: 100 });
  client.close();
  await expect(next).rejects.toMatchObject({ code: "unavailable" });
});

test("a journal that ends before the cursor reports that, and later events arrive", async () => {
  const mock = new MockServer();
  const client = clientOf(mock);
  const sandbox = await Sandbox.create({ client });
  const events = client.events({ cursor: 1_000 });
  expect((await events.next()).value).toMatchObject({ type: "events.lost" });
  mock.onCommand("true", () => 0);
  const { id } = await sandbox.commands.run("true");
  expect((await events.next()).value).toMatchObject({ type: "command.started", commandId: id });
  await events.return();
});
