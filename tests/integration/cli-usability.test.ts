import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { atollArgv, atollEnvironment, runAtoll, RunningAtoll } from "../support/atoll-command.ts";
import { delayRequest } from "../support/delayed-request.ts";
import { needsDriver } from "../support/drivers.ts";
import { makeTaskRepository } from "../support/task-repository.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let server: TestServerProcess;
let id: string;

beforeAll(async () => {
  server = await startTestServerProcess();
  id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
  await runAtoll(server, ["exec", "--name", "talk", id, "--", "seq", "100000"]);
  await makeTask(join(server.dataDir, "task"));
});
afterAll(async () => {
  await server.dispose();
});

/** Makes a repository with a task, a data set of one instance, and a prediction for that. */
async function makeTask(directory: string): Promise<void> {
  const repository = await makeTaskRepository(join(directory, "own", "greeting"), {
    greeting: "bye\n",
  });
  const { path, commit } = repository;
  const patch = await repository.patchFor({ greeting: "hello\n" });
  const test = "grep hello greeting && echo 'PASSED greets' || echo 'FAILED greets'";
  const files = {
    "task.json": {
      id: "greeting",
      repo: { path },
      environment: { language: "none" },
      test: "true",
      parser: "exit-code",
    },
    "set.jsonl": {
      instance_id: "own__greeting-1",
      repo: "own/greeting",
      base_commit: commit,
      patch,
      test_patch: "",
      FAIL_TO_PASS: JSON.stringify(["greets"]),
      PASS_TO_PASS: "[]",
      version: "1",
      eval_script: `: '>>>>> Start Test Output'\n${test}\n: '>>>>> End Test Output'\n`,
      log_parser: "parse_log_pytest",
    },
    "predictions.jsonl": { instance_id: "own__greeting-1", model_name_or_path: "m", model_patch: patch },
  };
  for (const [name, content] of Object.entries(files)) {
    await writeFile(join(directory, name), `${JSON.stringify(content)}\n`);
  }
}

/** Returns every command in docs/cli.md, by its words: `["key", "create"]`. */
async function commandsOfDocs(): Promise<string[]> {
  const page = await readFile(new URL("../../docs/cli.md", import.meta.url), "utf8");
  return [...page.matchAll(/^\| `atoll ([a-z -]+?)(?: [[<].*)?` +\|/gm)].map(([, words = ""]) => words);
}

const dataSet = ["--dataset", "DIR/task/set.jsonl", "--repos", "DIR/task"];

/**
 * Calls with which each command succeeds, in this order; `ID` is a running sandbox, and `DIR` the server's directory.
 * Commands with endless output end by themselves or are stopped.
 */
const jsonCalls: Readonly<Record<string, readonly string[] | "needs a terminal" | "is the server" | "see below">> = {
  run: ["--", "true"],
  exec: ["ID", "--", "true"],
  shell: "needs a terminal",
  attach: ["ID", "talk"],
  logs: ["ID", "talk"],
  ps: ["ID"],
  create: ["--driver", "local"],
  ls: [],
  info: ["ID"],
  stats: ["--no-stream"],
  cp: ["-", "ID:/tmp/file"],
  port: ["ID", "8000"],
  pause: "see below",
  resume: "see below",
  fork: "see below",
  checkpoints: ["ID"],
  "snapshot create": ["ID", "made-for-json"],
  "snapshot ls": [],
  "snapshot show": "see below",
  "snapshot export": "see below",
  "snapshot import": "see below",
  "snapshot rm": "see below",
  "snapshot share": "see below",
  "snapshot unshare": "see below",
  rollback: "see below",
  isolate: ["ID"],
  evidence: ["ID", "-o", "DIR/evidence"],
  release: ["ID"],
  "profile ls": [],
  "profile show": ["high"],
  "audit tail": ["-n", "3"],
  "audit query": [],
  "audit verify": [],
  "audit head": [],
  "task run": ["DIR/task/task.json", "--out", "DIR/task/ran"],
  "task smoke": ["DIR/task/own/greeting", "--out", "DIR/task/smoked"],
  "task explain": ["DIR/task/task.json"],
  "swe run": [...dataSet, "--predictions", "DIR/task/predictions.jsonl", "--out", "DIR/task/swe"],
  "swe smoke": ["own__greeting-1", ...dataSet, "--out", "DIR/task/swe-smoke"],
  "swe validate-gold": [...dataSet, "--out", "DIR/task/swe-gold"],
  "swe explain": ["own__greeting-1", ...dataSet],
  report: ["DIR/task/ran"],
  "cache ls": [],
  "cache prune": ["--all"],
  "app dev": "see below",
  "app check": ["examples/apps/chat"],
  "app create": "see below",
  "app start": "see below",
  "app ls": [],
  "app info": "see below",
  "app rm": "see below",
  "app reload": "see below",
  "app rollback": "see below",
  "app versions": "see below",
  "app call": "see below",
  "app logs": "see below",
  "app watch": "see below",
  kill: ["--all", "--yes"],
  scan: ["packages/cli/src/input"],
  up: "is the server",
  doctor: [],
  events: "see below",
  "template ls": [],
  "template import": "see below",
  "template rm": "see below",
  "key create": ["made-for-json"],
  "key ls": [],
  "key revoke": "see below",
  config: [],
  "config set": ["url", "http://127.0.0.1:4600"],
  "config unset": ["url"],
  completion: ["bash"],
};

describe("--json", () => {
  test("has a call for every command", async () => {
    expect(Object.keys(jsonCalls).toSorted()).toEqual((await commandsOfDocs()).toSorted());
  });

  const called = Object.entries(jsonCalls).filter((entry): entry is [string, string[]] => Array.isArray(entry[1]));

  // `kill --all` comes last, because it kills the sandbox that the other calls use.
  test.for(called.toSorted(([one], [other]) => Number(one === "kill") - Number(other === "kill")))(
    "%s prints only JSON",
    async ([name, words], context) => {
      // These take no driver, or check every driver.
      if (["run", "doctor"].includes(name) || /^(task|swe) (run|smoke|validate)/.test(name)) {
        needsDriver("gvisor", context);
      }
      const { dataDir } = server;
      const config = { XDG_CONFIG_HOME: `${dataDir}/config-home`, ATOLL_CACHE_DIR: `${dataDir}/cache` };
      const filled = words.map((word) => word.replace("ID", id).replace("DIR", dataDir));
      const argv = [...name.split(" "), "--json", ...filled];
      const { exitCode, stdout, stderr } = await runAtoll(server, argv, { env: config });
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
      const lines = stdout.trimEnd().split("\n");
      for (const line of lines) expect(JSON.parse(line)).toBeTypeOf("object");
      const isStream = /^(run|exec|attach|logs|audit tail|(task|swe) (run|smoke|validate-gold))$/.test(name);
      if (!isStream) expect(lines).toHaveLength(1);
    },
  );

  test.for([
    ["template import", ["bad name!", "/nowhere.tar"]],
    ["template rm", ["no-such-template"]],
    ["snapshot show", ["no-such-snapshot"]],
    ["snapshot export", ["no-such-snapshot", "/nowhere.atoll"]],
    ["snapshot import", ["bad name!", "/etc/hostname"]],
    ["snapshot rm", ["no-such-snapshot"]],
    ["snapshot share", ["no-such-snapshot"]],
    ["snapshot unshare", ["no-key/no-such-snapshot"]],
    ["key revoke", ["no-such-key"]],
    ["exec", ["no-such-sandbox", "--", "true"]],
    ["ls", ["--state", "nonsense"]],
    ["lss", []],
  ] as const)("prints the error of %s %j as JSON", async ([name, words]) => {
    const { exitCode, stdout, stderr } = await runAtoll(server, [...name.split(" "), "--json", ...words]);
    expect(stdout).toBe("");
    expect(exitCode).not.toBe(0);
    expect(JSON.parse(stderr)).toEqual({
      error: expect.objectContaining({ code: expect.any(String), message: expect.any(String) }),
    });
  });
});

describe("a reader that closes the output", () => {
  beforeAll(async () => {
    id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
    await runAtoll(server, ["exec", "--name", "talk", id, "--", "seq", "100000"]);
  });

  test.for([
    ["--help"],
    ["completion", "bash"],
    ["ls"],
    ["logs", "ID", "talk"],
    ["exec", "ID", "--", "yes"],
    ["cp", "ID:/usr/bin/bash", "-"],
    ["stats", "--interval", "10ms"],
  ])("ends %j without a message", (words) => {
    const argv = atollArgv(words.map((word) => word.replace("ID", id)));
    const script = '"$@" | head -c 10 > /dev/null; exit "${PIPESTATUS[0]}"';
    const { status, stderr } = spawnSync("bash", ["-c", script, "bash", ...argv], {
      env: atollEnvironment(server),
      timeout: 120_000,
    });
    expect(stderr.toString()).toBe("");
    // A short output is complete before the reader can close it.
    expect([0, 141]).toContain(status);
  });

  test("before the first line ends a command that would go on for ever", () => {
    // A process notices only when it writes that it has no reader. Events that all came before the reader left cause no
    // further write.
    const script = 'mkfifo "$0" && { : <"$0" & } && exec 4>"$0" && wait $! && "$@" >&4';
    const argv = atollArgv(["events", "--from", "0"]);
    const { status, stderr } = spawnSync("bash", ["-c", script, `${server.dataDir}/left`, ...argv], {
      env: atollEnvironment(server),
      timeout: 120_000,
    });
    expect(stderr.toString()).toBe("");
    expect(status).toBe(141);
  });
});

describe("stdout on a full disk", () => {
  test.for<[string[], number]>([
    [["completion", "bash"], 1],
    [["ls"], 1],
    [["cp", "ID:/etc/hostname", "-"], 1],
    [["cp", "ID:/usr/bin/bash", "-"], 1],
    [["logs", "ID", "talk"], 1],
    [["exec", "ID", "--", "echo", "lost"], 125],
    [["exec", "ID", "--", "yes"], 125],
  ])("is reported by %j", ([words, exitCode]) => {
    const argv = atollArgv(words.map((word) => word.replace("ID", id)));
    const { status, stderr } = spawnSync("sh", ["-c", 'exec "$@" > /dev/full', "sh", ...argv], {
      env: atollEnvironment(server),
      timeout: 120_000,
    });
    expect(stderr.toString()).toBe("error: Cannot write the output: ENOSPC: no space left on device, write\n");
    expect(status).toBe(exitCode);
  });
});

describe("a server that does not run", () => {
  const nowhere = { url: "http://127.0.0.1:9", key: "atk_none" };

  test.for([
    ["ls", 1],
    ["create", 1],
    ["run -- true", 125],
    ["exec 4k2 -- true", 125],
    ["cp a 4k2:b", 1],
    ["events", 1],
    ["template ls", 1],
    ["key ls", 1],
    ["kill --all --yes", 1],
  ] as const)("is reported by %s with a hint and exit code %d", async ([line, exitCode]) => {
    const outcome = await runAtoll(nowhere, line.split(" "));
    expect(outcome).toMatchObject({ exitCode, stdout: "" });
    expect(outcome.stderr).toMatch(/^error: Cannot reach the Atoll server at http:\/\/127\.0\.0\.1:9: /);
    expect(outcome.stderr).toContain('\nhint: Start the server with "atoll up", or say where it is with --url');
  });
});

describe("Ctrl-C", () => {
  test("while a sandbox is created removes it", async () => {
    const before = (await runAtoll(server, ["ls", "-q"])).stdout;
    await using proxy = await delayRequest(server.url, "POST", "/sandboxes");
    await using creating = new RunningAtoll({ ...server, url: proxy.url }, ["create", "--driver", "local"]);
    await proxy.arrived;
    creating.child.kill("SIGINT");
    await expect.poll(() => creating.stderr).toContain("Interrupted: what was being created is removed");
    proxy.release();
    expect(await creating.ended).toMatchObject({ exitCode: 130, stdout: "" });
    expect((await runAtoll(server, ["ls", "-q"])).stdout).toBe(before);
  });

  test("twice exits at once", async () => {
    await using proxy = await delayRequest(server.url, "POST", "/sandboxes");
    await using creating = new RunningAtoll({ ...server, url: proxy.url }, ["create", "--driver", "local"]);
    await proxy.arrived;
    creating.child.kill("SIGINT");
    await expect.poll(() => creating.stderr).toContain("Interrupted");
    creating.child.kill("SIGINT");
    expect((await creating.ended).exitCode).toBe(130);
  });

  test("during a run removes its sandbox", { tags: "gvisor" }, async () => {
    const before = (await runAtoll(server, ["ls", "-q"])).stdout;
    await using running = new RunningAtoll(server, ["run", "--", "sh", "-c", "echo ready; exec sleep 1000"]);
    await expect.poll(() => running.stdout.toString()).toBe("ready\n");
    running.child.kill("SIGINT");
    expect((await running.ended).exitCode).toBe(130);
    await expect.poll(async () => (await runAtoll(server, ["ls", "-q"])).stdout).toBe(before);
  });
});

test("output without a terminal has neither colour nor headers", async () => {
  const { stdout } = await runAtoll(server, ["ls"], { env: { TERM: "xterm-256color", COLORTERM: "truecolor" } });
  expect(stdout).toMatch(new RegExp(`^${id}\trunning\t`, "m"));
  expect(stdout).not.toContain("\u001B");
  expect(stdout).not.toContain("STATE");
});

test("an action that needs confirmation is refused without a terminal", async () => {
  const outcome = await runAtoll(server, ["kill", "--all"]);
  expect(outcome).toMatchObject({
    exitCode: 2,
    stderr: expect.stringMatching(
      /^error: Cannot ask for confirmation without a terminal: Kill .*\?\nhint: Agree to it with --yes\.\n$/,
    ),
  });
});

test("the suggestion of a server is printed unchanged", async () => {
  const error = { code: "unavailable", message: "Cannot go on: the server stops", suggestion: "Ask its neighbour." };
  const busy = createServer((_request, response) => {
    response.writeHead(503, { "content-type": "application/json" }).end(JSON.stringify({ error }));
  }).listen(0, "127.0.0.1");
  await once(busy, "listening");
  const url = `http://127.0.0.1:${(busy.address() as AddressInfo).port}`;
  const { stderr } = await runAtoll({ url, key: "any" }, ["ls"]);
  expect(stderr).toBe("error: Cannot go on: the server stops\nhint: Ask its neighbour.\n");
  busy.close();
});
