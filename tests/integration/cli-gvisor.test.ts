// @module-tag gvisor
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll, RunningAtoll } from "../support/atoll-command.ts";
import { Terminal } from "../support/terminal.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const calm = { newlines: true, echo: true, canonical: true, signals: true };

let server: TestServer;
let id: string;

beforeAll(async () => {
  server = await startTestServer();
  id = (await runAtoll(server, ["create", "--driver", "gvisor"])).stdout.trim();
});
afterAll(async () => {
  await server.dispose();
});

describe("a terminal in gVisor", () => {
  test("has the size of the local one, and follows its changes", async () => {
    const script = "trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; while :; do sleep 0.1; done";
    await using terminal = new Terminal(server, ["exec", "-it", id, "--", "bash", "-c", script]);
    await terminal.shows("24 80\r\n");
    terminal.resize(50, 100);
    await terminal.shows("50 100\r\n");
  });

  test("sends Ctrl-C to the foreground process in the sandbox and not to the shell", async () => {
    await using terminal = new Terminal(server, ["shell", "-e", "PS1=here> ", "-e", "PROMPT_COMMAND=", id]);
    await terminal.shows(/[>#$] ?$/);
    // The process that will be interrupted prints this itself, so when the text appears it is in the foreground.
    terminal.type("sh -c 'echo slee\"\"ping; exec sleep 1000'\r");
    await terminal.shows("sleeping");
    terminal.type("\u0003");
    terminal.type("echo status $?\r");
    await terminal.shows("status 130");
    terminal.type("exit 5\r");
    expect(await terminal.ended).toEqual({ exitCode: 5, modes: calm });
  });

  test("is left with ~. and attached to again", async () => {
    await using first = new Terminal(server, ["shell", id]);
    await first.shows(/[>#$] ?$/);
    first.type("here=kept\r\r~.");
    expect(await first.ended).toEqual({ exitCode: 0, modes: calm });
    const commandId = /atoll attach \w+ (cmd\w+)/.exec(first.screen)?.[1] ?? "";
    await using second = new Terminal(server, ["attach", id, commandId]);
    second.type("echo still $here\r");
    await second.shows("still kept");
    second.type("exit\r");
    expect(await second.ended).toEqual({ exitCode: 0, modes: calm });
  });
});

test.for([
  ["exit 3", 3],
  ["kill -KILL $$", 137],
  ["kill -INT $$", 130],
] as const)("%s in the sandbox ends exec with %d", async ([line, exitCode]) => {
  expect((await runAtoll(server, ["exec", id, "--", "bash", "-c", line])).exitCode).toBe(exitCode);
});

test("a time limit in the sandbox ends exec with 124", async () => {
  const { exitCode, stderr } = await runAtoll(server, ["exec", "--timeout", "300ms", id, "--", "sleep", "60"]);
  expect(exitCode).toBe(124);
  expect(stderr).toContain("reached its time limit");
});

test("a server in the sandbox runs in the background, is reached by its port, followed and measured", async () => {
  const words = ["exec", "-d", "--name", "web", "-w", "/etc", id, "--", "python3", "-u", "-m", "http.server", "8000"];
  const commandId = (await runAtoll(server, words)).stdout.trim();
  expect(commandId).toMatch(/^cmd/);
  const url = (await runAtoll(server, ["port", "--wait", "30s", "--public", id, "8000"])).stdout.trim();
  expect(await (await fetch(`${url}hostname`)).text()).not.toBe("");
  await using follower = new RunningAtoll(server, ["logs", "-f", id, "web"]);
  await expect.poll(() => follower.stdout.toString()).toContain("Serving HTTP on");
  await expect.poll(() => follower.stderr).toContain('"GET /hostname');
  const { sandboxes } = JSON.parse((await runAtoll(server, ["stats", "--no-stream", "--json", id])).stdout);
  expect(sandboxes[0]).toMatchObject({ id, cpuPercent: expect.any(Number) });
  expect(sandboxes[0].memoryBytes).toBeGreaterThan(1_000_000);
  expect((await runAtoll(server, ["exec", id, "--", "pkill", "-f", "http.server"])).exitCode).toBe(0);
  expect((await follower.ended).exitCode).toBe(0);
  expect((await runAtoll(server, ["attach", "--no-stdin", id, "web"])).exitCode).toBe(143);
});

test("a persistent sandbox is created and shown as one, and has no server while it is paused", async () => {
  const created = await runAtoll(server, ["create", "--persistent", "--json"]);
  const sandbox = JSON.parse(created.stdout) as { id: string };
  expect(sandbox).toMatchObject({ persistent: true, state: "running", server: { url: server.url } });
  const row = (await runAtoll(server, ["ls"])).stdout.split("\n").find((line) => line.startsWith(sandbox.id));
  expect(row?.split("\t").slice(0, 5)).toEqual([sandbox.id, "running", expect.any(String), "gvisor", "yes"]);
  expect((await runAtoll(server, ["info", sandbox.id])).stdout).toMatch(/persistent\s+yes/);
  const paused = JSON.parse((await runAtoll(server, ["pause", "--json", sandbox.id])).stdout) as { sandbox: object };
  expect(paused.sandbox).toMatchObject({ state: "paused", persistent: true });
  expect(paused.sandbox).not.toHaveProperty("server");
  expect((await runAtoll(server, ["exec", sandbox.id, "--", "echo", "back"])).stdout).toBe("back\n");
  expect((await runAtoll(server, ["kill", sandbox.id])).exitCode).toBe(0);
});

test("a key that may only read can inspect a paused sandbox without waking it", async () => {
  const sleeper = (await runAtoll(server, ["create"])).stdout.trim();
  await runAtoll(server, ["exec", "--name", "said", sleeper, "--", "echo", "something"]);
  await runAtoll(server, ["pause", sleeper]);
  const secret = (await runAtoll(server, ["key", "create", "looker", "--verb", "read", "--every-sandbox"])).stdout;
  const looker = { ...server, key: secret.trim() };
  for (const words of [["stats", "--no-stream"], ["ps", "--all"], ["info"], ["checkpoints"]]) {
    await runAtoll(looker, [...words, sleeper]);
  }
  await runAtoll(server, ["stats", "--no-stream", sleeper]);
  expect((await runAtoll(server, ["logs", sleeper, "said"])).stdout).toBe("something\n");
  const info = await runAtoll(looker, ["info", "--json", sleeper]);
  expect(JSON.parse(info.stdout)).toMatchObject({ state: "paused" });
  const stats = await runAtoll(looker, ["stats", "--no-stream", sleeper]);
  expect(stats).toMatchObject({ exitCode: 1, stdout: "", stderr: expect.stringMatching(/^error: Cannot .*paused/) });
  const awake = await runAtoll(looker, ["stats", "--no-stream", "--json", id]);
  expect(JSON.parse(awake.stdout)).toMatchObject({ sandboxes: [{ id }] });
  await runAtoll(server, ["kill", sleeper]);
});
