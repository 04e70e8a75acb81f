import { randomBytes } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { runAtoll, RunningAtoll, type CommandOutcome } from "../support/atoll-command.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;

beforeAll(async () => {
  server = await startTestServer();
});
afterAll(async () => {
  await server.dispose();
});

const atoll = async (...words: string[]) => runAtoll(server, words);

function json({ exitCode, stdout, stderr }: CommandOutcome) {
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return JSON.parse(stdout);
}

describe("a sandbox", () => {
  test("is created, listed, described, measured and killed, in tables and in JSON", async () => {
    const created = json(await atoll("create", "--json", "--driver", "local", "--label", "job=7", "--memory", "256m"));
    const { id } = created;
    expect(created).toMatchObject({ state: "running", labels: { job: "7" }, limits: { memoryBytes: 268_435_456 } });

    const listed = await atoll("ls", "--label", "job=7");
    expect(listed.stdout.split("\t").slice(0, 2)).toEqual([id, "running"]);
    expect(listed.stdout).not.toContain("\u001B");
    expect(json(await atoll("ls", "--json")).sandboxes).toEqual([expect.objectContaining({ id })]);
    expect((await atoll("ls", "-q", "--label", "job=8")).stdout).toBe("");

    expect(json(await atoll("info", "--json", id.slice(0, 8)))).toMatchObject({ id, driver: "local" });
    expect((await atoll("info", id)).stdout).toContain("memory\t268435456\n");
    const [stats] = json(await atoll("stats", "--no-stream", "--json")).sandboxes;
    expect(stats).toMatchObject({ id, cpuPercent: expect.any(Number), memoryBytes: expect.any(Number) });
    const [watched] = json(await atoll("stats", "--watch", "--no-stream", "--json")).sandboxes;
    expect(watched).toMatchObject({ id, history: { intervalMs: 5_000, kept: 360, samples: expect.any(Array) } });
    expect(json(await atoll("port", "--json", id, "8000"))).toMatchObject({ port: 8000, isPublic: false });

    expect((await atoll("kill", "--all")).exitCode).toBe(2);
    expect(await atoll("kill", id)).toEqual({ exitCode: 0, stdout: `${id}\n`, stderr: "" });
    expect(json(await atoll("kill", "--json", id))).toEqual({ sandboxes: [{ id, killed: false }] });
    const never = "z".repeat(20);
    expect(await atoll("kill", never)).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: `${never}: Cannot find sandbox ${never}\n`,
    });
    expect(json(await atoll("kill", "--all", "--yes", "--json"))).toEqual({ sandboxes: [] });
  });

  test("that does not exist is reported with a hint for listing the others", async () => {
    const outcome = await atoll("info", "zzz");
    expect(outcome).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: 'error: Cannot find a sandbox "zzz": no id begins with that\nhint: "atoll ls" lists them.\n',
    });
    const { error } = JSON.parse((await atoll("info", "--json", "zzz")).stderr);
    expect(error).toMatchObject({ code: "not_found", suggestion: '"atoll ls" lists them.' });
  });
});

test("events are followed from a cursor, a JSON line each", async () => {
  const { id } = json(await atoll("create", "--json", "--driver", "local"));
  await using events = new RunningAtoll(server, ["events", "--json", "--from", "0", "--sandbox", id]);
  await expect.poll(() => events.stdout.toString()).toContain('"to":"running"');
  await atoll("kill", id);
  await expect.poll(() => events.stdout.toString()).toContain('"to":"killed"');
  events.child.kill("SIGINT");
  const { exitCode, stdout } = await events.ended;
  expect(exitCode).toBe(130);
  const types = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(types.every((event) => event.sandboxId === id && event.type === "sandbox.state")).toBe(true);
});

test("a key is created, used, listed and revoked", async () => {
  const secret = (await atoll("key", "create", "reader", "--verb", "read")).stdout.trim();
  const as = (...words: string[]) => runAtoll({ url: server.url, key: secret }, words);
  expect((await as("ls", "-q")).exitCode).toBe(0);
  const refused = await as("create", "--driver", "local");
  expect(refused).toMatchObject({ exitCode: 1, stdout: "" });
  const { keys } = json(await atoll("key", "ls", "--json"));
  const { id } = keys.find(({ name }: { name: string }) => name === "reader");
  expect((await atoll("key", "revoke", id)).stdout).toBe(`${id}\n`);
  const revoked = await as("ls");
  expect(revoked.exitCode).toBe(1);
  expect(revoked.stderr).toContain("hint: The key comes from --key, ATOLL_API_KEY or");
});

test("other calls use what config set has stored, and config shows where each value is from", async () => {
  const XDG_CONFIG_HOME = join(server.dataDir, "config-home");
  const as = async (words: string[], stdin = "") => runAtoll(undefined, words, { stdin, env: { XDG_CONFIG_HOME } });
  expect((await as(["config", "set", "url", server.url])).exitCode).toBe(0);
  expect((await as(["config", "set", "key", "-"], `${server.key}\n`)).exitCode).toBe(0);
  expect((await as(["ls", "-q"])).exitCode).toBe(0);
  const { client, server: shown } = json(await as(["config", "--json"]));
  expect(client).toMatchObject({ url: { value: server.url, source: "file" }, key: { source: "file" } });
  expect(JSON.stringify(client)).not.toContain(server.key);
  expect(shown.settings.dataDir).toEqual({ value: server.dataDir, from: "flag" });
});

describe("run", { tags: "gvisor" }, () => {
  test("runs code and commands in a new sandbox and exits with their code", async () => {
    const python = ["run", "-l", "python", "-i", "-c", "import sys; print(sys.stdin.read().upper()); sys.exit(5)"];
    expect(await runAtoll(server, python, { stdin: "typed" })).toEqual({ exitCode: 5, stdout: "TYPED\n", stderr: "" });
    expect(await atoll("run", "--", "sh", "-c", "echo err >&2; exit 3")).toEqual({
      exitCode: 3,
      stdout: "",
      stderr: "err\n",
    });
    expect((await atoll("run", "--timeout", "300ms", "--", "sleep", "60")).exitCode).toBe(124);
    expect((await atoll("ls", "-q")).stdout).toBe("");
  });

  test("passes on bytes that are no text", async () => {
    await using running = new RunningAtoll(server, ["run", "--", "sh", "-c", String.raw`printf 'a\377\376b'`]);
    await running.ended;
    expect(running.stdout).toEqual(Buffer.from([0x61, 0xff, 0xfe, 0x62]));
  });

  test("accepts files and input of any bytes, and writes each file under its own name", async () => {
    const directory = await makeDataDir();
    const bytes = randomBytes(100_000);
    const input = randomBytes(100_000);
    await writeFile(join(directory, "data.bin"), bytes);
    const file = ["--file", join(directory, "data.bin")];
    await using running = new RunningAtoll(server, ["run", "-i", ...file, "--", "sh", "-c", "cat data.bin -"]);
    running.child.stdin.end(input);
    expect((await running.ended).exitCode).toBe(0);
    expect(running.stdout.equals(Buffer.concat([bytes, input]))).toBe(true);

    await writeFile(join(directory, "other"), "");
    const again = join(directory, "..", basename(directory), "data.bin");
    const twice = await atoll("run", ...file, "--file", again, "--", "true");
    expect(twice).toMatchObject({ exitCode: 125, stderr: expect.stringContaining("Cannot put two files data.bin") });
    const missing = await atoll("run", "--file", join(directory, "none"), "--", "true");
    expect(missing.stderr).toMatch(/^error: Cannot read .*none: ENOENT.*\n$/);
    await rm(directory, { recursive: true, force: true });
  });

  test("stops reading input that is too large", async () => {
    for (const words of [
      ["-i", "--", "cat"],
      ["-l", "bash", "-"],
    ]) {
      await using running = new RunningAtoll(server, ["run", ...words]);
      const zeros = Readable.from(endlessZeros()).on("error", () => undefined);
      zeros.pipe(running.child.stdin);
      expect(await running.ended).toMatchObject({
        exitCode: 125,
        stderr: expect.stringContaining("Cannot read stdin"),
      });
      zeros.destroy();
    }
    const endless = await atoll("run", "--file", "/dev/zero", "--", "true");
    expect(endless).toMatchObject({ exitCode: 125, stderr: expect.stringContaining("it is larger than 16 MiB") });
  });
});

function* endlessZeros(): Generator<Buffer> {
  for (;;) yield Buffer.alloc(1024 * 1024);
}

describe("an open stdin without further input", () => {
  test.for([
    ["run -", ["run", "-l", "bash", "-"]],
    ["run -i", ["run", "-i", "--", "cat"]],
    ["config set", ["config", "set", "key", "-"]],
    ["cp -", ["cp", "-", "ID:/tmp/never"]],
    ["template import -", ["template", "import", "never", "-"]],
  ] as const)("does not keep %s from ending at Ctrl-C", async ([, words]) => {
    const id = (await atoll("create", "--driver", "local")).stdout.trim();
    await using running = new RunningAtoll(
      server,
      words.map((word) => word.replace("ID", id)),
    );
    // More than fits into the pipe is accepted, so stdin is being read.
    await new Promise((resolve) => {
      running.child.stdin.write(Buffer.alloc(900_000, "x"), resolve);
    });
    running.child.kill("SIGINT");
    expect((await running.ended).exitCode).toBe(130);
    expect(await atoll("exec", id, "--", "cat", "/tmp/never")).toMatchObject({ exitCode: 1, stdout: "" });
  });

  test("does not keep cp from reporting an error", async () => {
    await using running = new RunningAtoll(server, ["cp", "-", "00000000000000000000:/tmp/never"]);
    expect(await running.ended).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("Cannot find") });
  });
});

test("up starts a server, and Ctrl-C stops it", async () => {
  const dataDir = await makeDataDir();
  const flags = ["--data-dir", dataDir, "--guest-path", guestBinaryPath(), "--port", "0", "--log-level", "error"];
  await using up = new RunningAtoll(undefined, ["up", ...flags]);
  await expect.poll(() => up.stdout.toString()).toContain("Documentation:");
  const url = /listens on (\S+)/.exec(up.stdout.toString())?.[1] ?? "";
  const key = /ATOLL_API_KEY=(\S+)/.exec(up.stdout.toString())?.[1] ?? "";
  expect(await runAtoll({ url, key }, ["ls", "-q"])).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  const second = await makeDataDir();
  const { port } = new URL(url);
  expect(await runAtoll(undefined, ["up", ...flags, "--data-dir", second, "--port", port])).toEqual({
    exitCode: 1,
    stdout: "",
    stderr: `Cannot listen on ${url}: another program listens there
Stop it, or choose another port: \`npm start -- --port 4700\`, \`atoll up --port 4700\`.
`,
  });
  await rm(second, { recursive: true, force: true });
  up.child.kill("SIGINT");
  expect((await up.ended).exitCode).toBe(0);
  await rm(dataDir, { recursive: true, force: true });
});

test("without a command it prints its help and exits with 0", async () => {
  for (const words of [[], ["key"], ["--json"]]) {
    const { exitCode, stdout, stderr } = await runAtoll(undefined, words);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    expect(stdout).toMatch(/^Usage: atoll /);
  }
  expect((await runAtoll(undefined, ["help", "nonsense"])).exitCode).toBe(2);
});

test("up with an unknown flag ends with 2", async () => {
  const { exitCode, stderr } = await runAtoll(undefined, ["up", "--bogus"]);
  expect({ exitCode, stderr }).toEqual({
    exitCode: 2,
    stderr: "Cannot start: --bogus is not one of its flags\n`atoll up --help` lists them.\n",
  });
});

test("doctor ends with 1 if the server or the key does not work", async () => {
  const nowhere = { url: "http://127.0.0.1:1", key: "any" };
  const absent = await runAtoll(nowhere, ["doctor"]);
  expect(absent.stdout).toContain("--  server: Cannot reach the Atoll server");
  expect(absent.exitCode).toBe(1);
  const stranger = await runAtoll({ ...server, key: "wrong" }, ["doctor"]);
  expect(stranger.stdout).toContain("--  key: Cannot ");
  expect(stranger.exitCode).toBe(1);
  expect((await atoll("doctor")).exitCode).toBe(0);
});

test("doctor reports on the machine and on the connection", async () => {
  const report = JSON.parse((await atoll("doctor", "--json")).stdout);
  expect(report.machine.findings).toContainEqual(expect.objectContaining({ name: "Linux kernel", status: "ok" }));
  expect(report.connection).toEqual([
    { name: "server", isFine: true, finding: `${server.url} accepts work` },
    { name: "key", isFine: true, finding: "the server knows it" },
  ]);
});
