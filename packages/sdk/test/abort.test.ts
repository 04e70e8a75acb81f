import { Atoll, Sandbox, type ConnectionOptions } from "@atoll/sdk";
import { MockServer } from "@atoll/sdk/mock";
import { expect, test } from "vitest";

const reason = new Error("changed my mind");

async function idsOf(client: Atoll): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of client.sandboxes()) ids.push(id);
  return ids;
}

/** The mock, which answers requests for this path only after `release`, like a slow server. */
function withSlowAnswers(
  path: RegExp,
  options: ConnectionOptions = {},
): { mock: MockServer; client: Atoll; asked: Promise<void>; release: () => void } {
  const mock = new MockServer();
  mock.onCommand("cat", async ({ stdin }) => {
    for await (const _ of stdin);
  });
  mock.onCommand("sleep 60", () => new Promise(() => undefined));
  let ask = (): void => undefined;
  let release = (): void => undefined;
  const asked = new Promise<void>((resolve) => {
    ask = resolve;
  });
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const client = new Atoll({
    ...mock.connection,
    ...options,
    fetch: async (input, init) => {
      const request = new Request(input, init);
      const answer = await mock.connection.fetch(request);
      if (request.method === "POST" && path.test(new URL(request.url).pathname)) {
        ask();
        await released;
        request.signal.throwIfAborted();
      }
      return answer;
    },
  });
  return { mock, client, asked, release };
}

test.for([
  ["a run with input", (sandbox: Sandbox, signal: AbortSignal) => sandbox.commands.run("cat", { stdin: "x", signal })],
  [
    "a start in the background",
    (sandbox: Sandbox, signal: AbortSignal) => sandbox.commands.run("sleep 60", { background: true, signal }),
  ],
  ["a terminal", (sandbox: Sandbox, signal: AbortSignal) => sandbox.pty.create({ argv: ["cat"], signal })],
] as const)("%s that is aborted before its answer arrives leaves no command behind", async ([, start]) => {
  const { client, asked, release } = withSlowAnswers(/\/commands$/);
  const sandbox = await Sandbox.create({ client });
  const stop = new AbortController();
  const started = start(sandbox, stop.signal);
  started.catch(() => undefined);
  await asked;
  expect(await sandbox.commands.list()).toMatchObject([{ state: "running" }]);
  stop.abort(reason);
  // The caller does not wait for the answer.
  await expect(started).rejects.toBe(reason);
  release();
  await expect.poll(() => sandbox.commands.list()).toMatchObject([{ state: "exited", signal: "SIGKILL" }]);
  client.close();
});

test("a background command whose handle was returned goes on after an abort", async () => {
  const { client, release } = withSlowAnswers(/\/commands$/);
  release();
  const sandbox = await Sandbox.create({ client });
  const stop = new AbortController();
  const handle = await sandbox.commands.run("cat", { background: true, stdin: true, signal: stop.signal });
  stop.abort(reason);
  await handle.closeStdin();
  expect(await handle.wait()).toMatchObject({ exitCode: 0, signal: null });
  client.close();
});

test("a sandbox and copies are removed if their caller has aborted", async () => {
  const slowCreate = withSlowAnswers(/\/sandboxes$/);
  const stop = new AbortController();
  const created = Sandbox.create({ client: slowCreate.client, signal: stop.signal });
  created.catch(() => undefined);
  await slowCreate.asked;
  stop.abort(reason);
  await expect(created).rejects.toBe(reason);
  slowCreate.release();
  await expect.poll(() => idsOf(slowCreate.client)).toEqual([]);

  const slowFork = withSlowAnswers(/\/fork$/);
  const sandbox = await Sandbox.create({ client: slowFork.client });
  const leave = new AbortController();
  const forked = sandbox.fork({ count: 2, signal: leave.signal });
  forked.catch(() => undefined);
  await slowFork.asked;
  leave.abort(reason);
  await expect(forked).rejects.toBe(reason);
  slowFork.release();
  await expect.poll(() => idsOf(slowFork.client)).toEqual([sandbox.id]);
});

test("sandboxes that are created after their caller's time limit are removed", async () => {
  const { mock, client, release } = withSlowAnswers(/\/sandboxes$/, { requestTimeoutMs: 50 });
  // They are created one after the other, so that the time of the first is long over when its answer comes.
  for (let count = 0; count < 2; count += 1) {
    await expect(Sandbox.create({ client })).rejects.toMatchObject({
      code: "timed_out",
      message: expect.stringContaining("50 ms") as string,
    });
  }
  const observer = new Atoll(mock.connection);
  expect(await idsOf(observer)).toHaveLength(2);
  release();
  await expect.poll(() => idsOf(observer)).toEqual([]);
});

test("background commands that start after their caller's time limit are killed", async () => {
  const { mock, client, release } = withSlowAnswers(/\/commands$/, { requestTimeoutMs: 50 });
  const sandbox = await Sandbox.create(mock.connection);
  const same = await Sandbox.connect(sandbox.id, { client });
  for (let count = 0; count < 2; count += 1) {
    const started = same.commands.run("sleep 60", { background: true });
    await expect(started).rejects.toMatchObject({ code: "timed_out" });
  }
  const states = async () => (await sandbox.commands.list()).map(({ state }) => state);
  expect(await states()).toEqual(["running", "running"]);
  release();
  await expect.poll(states).not.toContain("running");
});
