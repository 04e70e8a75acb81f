import { pollUntil } from "@atoll/host";
import type { CommandInfo, CommandLine, SandboxInfo } from "@atoll/protocol";
import { afterEach, describe, expect, test } from "vitest";
import { all, ApiClient, readLines } from "../support/api-client.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let server: TestServerProcess | undefined;
afterEach(async () => {
  await server?.dispose();
  server = undefined;
});

async function start(options: Parameters<typeof startTestServerProcess>[0] = {}): Promise<TestServerProcess> {
  server = await startTestServerProcess(options);
  return server;
}

/** Follows a command across as many servers as necessary, as a client without the SDK would. */
async function followTo(read: () => ApiClient, path: string): Promise<{ output: string; end: CommandInfo }> {
  let output = Buffer.alloc(0);
  let end: CommandInfo | undefined;
  let lastError: unknown;
  const readOn = async (): Promise<void> => {
    const response = await read().fetch("GET", `${path}/output?from=${output.byteLength}`);
    expect(response.status).toBe(200);
    for await (const line of readLines<CommandLine>(response)) {
      if (line.type === "stdout") output = Buffer.concat([output, Buffer.from(line.text ?? "")]);
      if (line.type === "ended") end = line.command;
    }
  };
  const hasEnded = async (): Promise<boolean> => {
    await readOn().catch((error: unknown) => {
      // `fetch` reports a missing server, and one that ends during a response, in this way; other errors are failures.
      if (!(error instanceof TypeError)) throw error;
      lastError = error;
    });
    return end !== undefined;
  };
  await pollUntil(hasEnded, { deadlineMs: 120_000 });
  if (end === undefined) throw new Error(`The command at ${path} did not end in time`, { cause: lastError });
  return { output: output.toString(), end };
}

describe("a server that is asked to stop", () => {
  test("ends streams with a message, exits with 0, and leaves the sandboxes to the next one", async () => {
    const first = await start();
    const api = new ApiClient(first.url, first.key);
    const { sandbox } = await api.create();
    const command = await api.start(sandbox.id, { shell: "echo one; read line; echo two $line; exit 5", stdin: true });
    const path = `/sandboxes/${sandbox.id}/commands/${command.id}`;
    const following = all(readLines<CommandLine>(await api.fetch("GET", `${path}/output`)));
    const waiting = api.ask("GET", `${path}/wait?timeoutMs=60000`);
    await waitFor(async () => (await api.ask<CommandInfo>("GET", path)).body.stdoutBytes === 4);
    expect(await first.signal("SIGTERM")).toEqual({ code: 0, signal: null });
    expect((await following).at(-1)).toEqual({ type: "shutdown" });
    expect((await waiting).body.error?.code).toBe("unavailable");

    const second = await start({ dataDir: first.dataDir });
    expect(second.key).toBe("");
    expect(second.greeting).toContain("Continues 1 sandbox");
    const again = new ApiClient(second.url, first.key);
    await again.fetch("POST", `${path}/stdin?offset=0`, { body: "x\n" });
    const { output, end } = await followTo(() => again, path);
    expect(output).toBe("one\ntwo x\n");
    expect(end).toMatchObject({ exitCode: 5, state: "exited" });
  });

  test("with --kill-on-exit leaves nothing", async () => {
    const first = await start({ flags: ["--kill-on-exit"] });
    await new ApiClient(first.url, first.key).create();
    expect(await first.signal("SIGINT")).toEqual({ code: 0, signal: null });
    const second = await start({ dataDir: first.dataDir });
    const { body } = await new ApiClient(second.url, first.key).ask<{ sandboxes: SandboxInfo[] }>("GET", "/sandboxes");
    expect(body.sandboxes).toEqual([]);
  });
});

test("a server that is killed during many commands loses no byte of their output", async () => {
  const first = await start();
  let api = new ApiClient(first.url, first.key);
  const count = 3;
  const sandboxes = await Promise.all(Array.from({ length: count }, () => api.create()));
  const shell = "for i in $(seq 1 400); do echo line $i; sleep 0.01; done; exit 9";
  const paths = await Promise.all(
    sandboxes.map(async ({ sandbox: { id } }) => `/sandboxes/${id}/commands/${(await api.start(id, { shell })).id}`),
  );
  const followed = paths.map((path) => followTo(() => api, path));
  for (const _ of [1, 2]) {
    await waitFor(async () => (await api.ask<CommandInfo>("GET", paths[0] ?? "")).body.stdoutBytes > 0);
    await server?.signal("SIGKILL");
    const next = await start({ dataDir: first.dataDir });
    api = new ApiClient(next.url, first.key);
  }
  const expected = Array.from({ length: 400 }, (_, index) => `line ${index + 1}\n`).join("");
  for (const { output, end } of await Promise.all(followed)) {
    expect(output).toBe(expected);
    expect(end).toMatchObject({ exitCode: 9, state: "exited" });
  }
});

test("a retry of a one-off run whose server was killed reports it as lost, and does not run it again", async () => {
  let running = await start();
  const { key, dataDir } = running;
  const ask = (method: "POST" | "DELETE", body: object | undefined, named: Record<string, string>) =>
    new ApiClient(running.url, key).ask(method, "/run", body, named);
  const headers = { "idempotency-key": "once" };
  const request = { driver: "local", argv: ["sleep", "1000"] };
  const streamed = await new ApiClient(running.url, key).fetch("POST", "/run", {
    body: JSON.stringify(request),
    headers: { ...headers, "content-type": "application/json", accept: "application/x-ndjson" },
  });
  const { value } = await readLines<CommandLine>(streamed).next();
  expect(value).toMatchObject({ type: "started" });
  for (const _ of [1, 2]) {
    await running.signal("SIGKILL");
    running = await start({ dataDir });
    expect((await ask("POST", request, headers)).body.error).toMatchObject({ code: "sandbox_ended" });
  }
  const other = { driver: "local", argv: ["true"] };
  expect((await ask("POST", other, headers)).body.error).toMatchObject({ code: "invalid_argument" });
  expect((await ask("POST", other, { "idempotency-key": "other" })).body).toMatchObject({ command: { exitCode: 0 } });
  expect((await ask("DELETE", undefined, headers)).status).toBe(204);
  expect((await ask("POST", other, headers)).body).toMatchObject({ command: { exitCode: 0 } });
});

test("a server that cannot start names the wrong setting", async () => {
  await expect(startTestServerProcess({ flags: ["--max-connections", "none"] })).rejects.toThrow(
    /maxConnections \(from --max-connections\)/,
  );
});

async function waitFor(check: () => Promise<boolean>): Promise<void> {
  await expect.poll(check).toBe(true);
}
