import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { atollArgv, atollEnvironment, runAtoll, RunningAtoll } from "../support/atoll-command.ts";
import { delayRequest } from "../support/delayed-request.ts";
import { needsDriver } from "../support/drivers.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

let server: TestServerProcess;
let id: string;

beforeAll(async () => {
  server = await startTestServerProcess();
  id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
  await runAtoll(server, ["exec", "--name", "talk", id, "--", "seq", "100000"]);
});
afterAll(async () => {
  await server.dispose();
});

/** Every command of the page, by its words: `["key", "create"]`. */
async function commandsOfDocs(): Promise<string[]> {
  const page = await readFile(new URL("../../docs/cli.md", import.meta.url), "utf8");
  return [...page.matchAll(/^\| `atoll ([a-z ]+?)(?: [[<].*)?` +\|/gm)].map(([, words = ""]) => words);
}

/**
 * How each is called so that it succeeds; `ID` is a sandbox that runs. Those of a stream end by themselves or are cut
 * off.
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
  kill: ["--all", "--yes"],
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
  test("has a call for every command that there is", async () => {
    expect(Object.keys(jsonCalls).toSorted()).toEqual((await commandsOfDocs()).toSorted());
  });

  const called = Object.entries(jsonCalls).filter((entry): entry is [string, string[]] => Array.isArray(entry[1]));

  // `kill --all` comes last: it ends what the others use.
  test.for(called.toSorted(([one]) => (one === "kill" ? 1 : -1)))(
    "%s prints JSON and nothing else",
    async ([name, words], context) => {
      // They take no driver, or look for each.
      if (name === "run" || name === "doctor") needsDriver("gvisor", context);
      const config = { XDG_CONFIG_HOME: `${server.dataDir}/config-home` };
      const argv = [...name.split(" "), "--json", ...words.map((word) => word.replace("ID", id))];
      const { exitCode, stdout, stderr } = await runAtoll(server, argv, { env: config });
      expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
      const lines = stdout.trimEnd().split("\n");
      for (const line of lines) expect(JSON.parse(line)).toBeTypeOf("object");
      const isStream = ["run", "exec", "attach", "logs"].includes(name);
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
    ["snapshot unshare", ["nobody/no-such-snapshot"]],
    ["key revoke", ["no-such-key"]],
    ["exec", ["no-such-sandbox", "--", "true"]],
    ["ls", ["--state", "nonsense"]],
    ["lss", []],
  ] as const)("tells what is wrong with %s %j as JSON too", async ([name, words]) => {
    const { exitCode, stdout, stderr } = await runAtoll(server, [...name.split(" "), "--json", ...words]);
    expect(stdout).toBe("");
    expect(exitCode).not.toBe(0);
    expect(JSON.parse(stderr)).toEqual({
      error: expect.objectContaining({ code: expect.any(String), message: expect.any(String) }),
    });
  });
});

describe("a reader that leaves", () => {
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
  ])("ends %j without a word", (words) => {
    const argv = atollArgv(words.map((word) => word.replace("ID", id)));
    const script = '"$@" | head -c 10 > /dev/null; exit "${PIPESTATUS[0]}"';
    const { status, stderr } = spawnSync("bash", ["-c", script, "bash", ...argv], {
      env: atollEnvironment(server),
      timeout: 120_000,
    });
    expect(stderr.toString()).toBe("");
    // Short output is written before anybody could leave.
    expect([0, 141]).toContain(status);
  });

  test("before the first word ends what would go on for ever", () => {
    // What has no reader any more is told so when it writes, and events that all came before the reader left say
    // nothing.
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

describe("a full disk behind stdout", () => {
  test.for<[string[], number]>([
    [["completion", "bash"], 1],
    [["ls"], 1],
    [["cp", "ID:/etc/hostname", "-"], 1],
    [["cp", "ID:/usr/bin/bash", "-"], 1],
    [["logs", "ID", "talk"], 1],
    [["exec", "ID", "--", "echo", "lost"], 125],
    [["exec", "ID", "--", "yes"], 125],
  ])("is told by %j", ([words, exitCode]) => {
    const argv = atollArgv(words.map((word) => word.replace("ID", id)));
    const { status, stderr } = spawnSync("sh", ["-c", 'exec "$@" > /dev/full', "sh", ...argv], {
      env: atollEnvironment(server),
      timeout: 120_000,
    });
    expect(stderr.toString()).toBe("error: Cannot write the output: ENOSPC: no space left on device, write\n");
    expect(status).toBe(exitCode);
  });
});

describe("a server that is not there", () => {
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
  ] as const)("is told by %s with what helps, and exit code %d", async ([line, exitCode]) => {
    const outcome = await runAtoll(nowhere, line.split(" "));
    expect(outcome).toMatchObject({ exitCode, stdout: "" });
    expect(outcome.stderr).toMatch(
      /^error: Cannot reach the Atoll server at http:\/\/127\.0\.0\.1:9: .*\nhint: Start the server with "atoll up", or say where it is with --url/,
    );
  });
});

describe("Ctrl-C", () => {
  test("while a sandbox is created leaves none behind", async () => {
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

  test("twice does not wait", async () => {
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

test("plain output has neither colour nor headers, whatever the terminal could do", async () => {
  const { stdout } = await runAtoll(server, ["ls"], { env: { TERM: "xterm-256color", COLORTERM: "truecolor" } });
  expect(stdout).toMatch(new RegExp(`^${id}\trunning\t`, "m"));
  expect(stdout).not.toContain("\u001B");
  expect(stdout).not.toContain("STATE");
});

test("what has to be confirmed is not done where nobody can be asked", async () => {
  const outcome = await runAtoll(server, ["kill", "--all"]);
  expect(outcome).toMatchObject({
    exitCode: 2,
    stderr: expect.stringMatching(
      /^error: Cannot ask for confirmation without a terminal: Kill .*\?\nhint: Agree to it with --yes\.\n$/,
    ),
  });
});

test("what a server suggests that answers is told as it is", async () => {
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
