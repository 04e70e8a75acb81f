import type { CommandInfo, CommandLine, CommandResult } from "@atoll/protocol";
import { Atoll } from "@atoll/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient, readLines } from "../support/api-client.ts";
import { RawWebSocket } from "../support/raw-websocket.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

/** The server runs in this process, so that an unhandled rejection in it fails the test run. */
let server: TestServer;
let api: ApiClient;

beforeAll(async () => {
  server = await startTestServer();
  api = new ApiClient(server.url, server.key);
});

afterAll(async () => {
  await server.dispose();
});

interface Seen {
  stdout: string;
  stderr: string;
  end: CommandInfo | undefined;
}

const programs = [
  (n: number) => ({ language: "bash", code: `echo out ${n}; echo err ${n} >&2` }),
  (n: number) => ({ argv: ["sh", "-c", `echo out ${n}; echo err ${n} >&2`] }),
  (n: number) => ({ language: "bash", code: `cat; echo err ${n} >&2`, stdin: `out ${n}\n` }),
  (n: number) => ({ argv: ["sh", "-c", `echo out ${n}; exec sh -c 'echo err ${n} >&2'`] }),
  (n: number) => ({ argv: ["sh", "-c", `(echo out ${n}) & wait; echo err ${n} >&2`] }),
];

function request(n: number): { driver: string } {
  const program = programs[n % programs.length];
  if (program === undefined) throw new Error("No program has this number");
  return { driver: "local", ...program(n) };
}

function post(body: object, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  const all = { "content-type": "application/json", ...headers };
  return api.fetch("POST", "/run", { body: JSON.stringify(body), headers: all, ...(signal && { signal }) });
}

async function whole(response: Response): Promise<Seen> {
  if (response.headers.get("content-type")?.includes("ndjson") !== true) {
    const { stdout, stderr, command } = (await response.json()) as CommandResult;
    return { stdout, stderr, end: command };
  }
  const seen: Seen = { stdout: "", stderr: "", end: undefined };
  for await (const line of readLines<CommandLine>(response)) {
    if (line.type === "stdout" || line.type === "stderr") seen[line.type] += line.text ?? "";
    if (line.type === "ended") seen.end = line.command;
  }
  return seen;
}

/** Starts a run and disconnects at a chosen moment: before any response, at the start, or after the first output. */
async function leave(n: number, headers: Record<string, string>): Promise<void> {
  const left = new AbortController();
  const body = { driver: "local", argv: ["sh", "-c", `echo out ${n}; exec sleep 600`], timeoutMs: 600_000 };
  const answer = post(body, { ...headers, accept: "application/x-ndjson" }, left.signal);
  if (n % 4 === 0) {
    // The request is on its way by now: another request was answered after it was sent.
    await api.ask("GET", "/healthz");
    left.abort();
    await expect(answer).rejects.toThrow(/abort/);
    return;
  }
  const waitFor = n % 4 === 1 ? "started" : "stdout";
  let follower: RawWebSocket | undefined;
  const reading = (async () => {
    for await (const line of readLines<CommandLine>(await answer)) {
      if (line.type === "started" && n % 4 === 3) {
        follower = await RawWebSocket.greeted(server.url, { key: server.key });
        const { sandboxId, id: commandId } = line.command;
        follower.send({ type: "follow", channel: 1, sandboxId, commandId });
        await follower.until("following");
      }
      if (line.type === waitFor) left.abort();
    }
  })();
  await expect(reading).rejects.toThrow(/abort/);
  // A follower gets the end of the command, and does not wait for ever.
  for (let seen = await follower?.next(); seen !== undefined; seen = await follower?.next()) {
    if ("type" in seen && (seen.type === "ended" || seen.type === "error")) break;
  }
  await follower?.close();
}

test("many runs at once, some with callers that disconnect, are complete and leave no sandbox", async () => {
  const total = 90;
  let next = 0;
  const answered: number[] = [];
  const worker = async (): Promise<void> => {
    for (let n = next++; n < total; n = next++) {
      const headers: Record<string, string> = n % 2 === 0 ? { accept: "application/x-ndjson" } : {};
      if (n % 3 === 0) {
        await leave(n / 3, {});
        continue;
      }
      if (n % 5 === 0) headers["idempotency-key"] = `storm-${n}`;
      const response = await post(request(n), headers);
      expect(response.status).toBe(200);
      const { stdout, stderr, end } = await whole(response);
      expect({ n, stdout, stderr, exitCode: end?.exitCode }).toEqual({
        n,
        stdout: `out ${n}\n`,
        stderr: `err ${n}\n`,
        exitCode: 0,
      });
      answered.push(n);
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  expect(answered).toHaveLength(60);
  // The results of runs with a key stay for a while, for callers that lost the response.
  const kept = answered.filter((n) => n % 5 === 0).length;
  await expect
    .poll(async () => (await api.ask<{ sandboxes: unknown[] }>("GET", "/sandboxes")).body.sandboxes.length)
    .toBeLessThanOrEqual(kept);
});

describe("a run with a key", () => {
  const headers = { "idempotency-key": "kept" };
  const request = { driver: "local" as const, argv: ["echo", "hi"] };
  const count = async (): Promise<number> =>
    (await api.ask<{ sandboxes: unknown[] }>("GET", "/sandboxes")).body.sandboxes.length;

  test("is removed on request, and the key then starts a new one", async () => {
    const before = await count();
    const first = await api.ask<CommandResult>("POST", "/run", request, headers);
    const again = await api.ask<CommandResult>("POST", "/run", request, headers);
    expect(again.body.command.id).toBe(first.body.command.id);
    expect(await count()).toBe(before + 1);
    expect((await api.ask("DELETE", "/run", undefined, headers)).status).toBe(204);
    expect(await count()).toBe(before);
    const third = await api.ask<CommandResult>("POST", "/run", request, headers);
    expect(third.body.command.id).not.toBe(first.body.command.id);
    await api.ask("DELETE", "/run", undefined, headers);
    expect((await api.ask("DELETE", "/run", undefined, headers)).status).toBe(204);
    expect((await api.ask("DELETE", "/run")).body.error?.code).toBe("invalid_argument");
  });

  test("cannot be ended by another key", async () => {
    const created = await api.ask<{ secret: string }>("POST", "/keys", { name: "other", verbs: ["commands"] });
    const run = await api.ask<CommandResult>("POST", "/run", request, headers);
    expect((await api.as(created.body.secret).ask("DELETE", "/run", undefined, headers)).status).toBe(204);
    const again = await api.ask<CommandResult>("POST", "/run", request, headers);
    expect(again.body.command.id).toBe(run.body.command.id);
    await api.ask("DELETE", "/run", undefined, headers);
  });

  test("of the SDK leaves no sandbox, whether it ends or is aborted", async () => {
    const before = await count();
    const client = new Atoll({ baseUrl: server.url, apiKey: server.key });
    expect((await client.run(request)).stdout).toBe("hi\n");
    const left = new AbortController();
    const onStdout = (): void => left.abort(new Error("enough"));
    const endless = { driver: "local" as const, argv: ["sh", "-c", "echo hi; exec sleep 600"] };
    await expect(client.run({ ...endless, onStdout, signal: left.signal })).rejects.toThrow("enough");
    await expect.poll(count).toBe(before);
    client.close();
  });
});
