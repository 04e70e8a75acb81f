import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll, RunningAtoll } from "../support/atoll-command.ts";
import { delayRequest } from "../support/delayed-request.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let id: string;

beforeAll(async () => {
  server = await startTestServer();
  id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
});
afterAll(async () => {
  await server.dispose();
});

const exec = async (words: string[], options: Parameters<typeof runAtoll>[2] = {}) =>
  runAtoll(server, ["exec", ...words], options);

describe("the exit code of exec", () => {
  test.for([
    ["true", 0],
    ["exit 3", 3],
    ["exit 255", 255],
    ["kill -KILL $$", 137],
    ["kill -TERM $$", 143],
  ] as const)("of %s is %d", async ([line, exitCode]) => {
    expect(await exec([id, "--", "sh", "-c", line])).toEqual({ exitCode, stdout: "", stderr: "" });
  });

  test("is 124 when the time limit was reached, and stderr gives the reason", async () => {
    const { exitCode, stderr } = await exec(["--timeout", "200ms", id, "--", "sleep", "60"]);
    expect(exitCode).toBe(124);
    expect(stderr).toMatch(/^atoll: the command reached its time limit and was ended after /);
  });

  test("is 127 when there is no such program", async () => {
    expect(await exec([id, "--", "no-such-program"])).toMatchObject({ exitCode: 127, stdout: "" });
  });

  test("is 125 when atoll itself failed, for any reason", async () => {
    const unknown = await exec(["00000000000000000000", "--", "true"]);
    expect(unknown).toMatchObject({ exitCode: 125, stdout: "" });
    expect((await exec(["--no-such-option", id, "--", "true"])).exitCode).toBe(125);
    const nowhere = await runAtoll({ url: "http://127.0.0.1:1", key: "" }, ["exec", id, "--", "true"]);
    expect(nowhere.exitCode).toBe(125);
    expect(nowhere.stderr).toMatch(
      /^error: Cannot reach the Atoll server at .*\nhint: Start the server with "atoll up"/,
    );
  });
});

describe("exec", () => {
  test("keeps stdout and stderr apart and adds nothing to them", async () => {
    const outcome = await exec([id, "--", "sh", "-c", "printf out; printf err >&2"]);
    expect(outcome).toEqual({ exitCode: 0, stdout: "out", stderr: "err" });
  });

  test("sends all of its stdin, including the end", async () => {
    const input = randomBytes(3_000_000);
    await using running = new RunningAtoll(server, ["exec", "-i", id, "--", "cat"]);
    running.child.stdin.end(input);
    expect((await running.ended).exitCode).toBe(0);
    expect(running.stdout.equals(input)).toBe(true);
  });

  test("does not touch stdin without -i", async () => {
    expect((await exec([id, "--", "cat"], { stdin: "unread" })).stdout).toBe("");
  });

  test("ends with the command while its own input is still open", async () => {
    await using running = new RunningAtoll(server, ["exec", "-i", id, "--", "sh", "-c", "exit 4"]);
    expect((await running.ended).exitCode).toBe(4);
  });

  test("accepts an unambiguous prefix of the id, options before -- and variables", async () => {
    const words = ["-e", "A=1 2", id.slice(0, 12), "-w", "/tmp", "--", "sh", "-c", 'echo "$A $PWD"'];
    expect((await exec(words)).stdout).toBe("1 2 /tmp\n");
  });

  test("passes all words after the sandbox to the command if there is no --", async () => {
    expect((await exec([id, "echo", "-e", "--json", "-t"])).stdout).toBe("--json -t\n");
  });

  test("prints JSON lines: start, output with offsets, end", async () => {
    const { stdout } = await exec(["--json", id, "--", "sh", "-c", String.raw`printf 'a\377'; exit 2`]);
    const lines = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(lines.at(0)).toMatchObject({ type: "started", command: { sandboxId: id, state: "running" } });
    expect(lines.at(1)).toEqual({ type: "stdout", at: 0, offset: 0, base64: "Yf8=" });
    expect(lines.at(-1)).toMatchObject({ type: "ended", command: { state: "exited", exitCode: 2 } });
  });

  test("forwards Ctrl-C to the command and exits with its code", async () => {
    const script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done";
    await using running = new RunningAtoll(server, ["exec", id, "--", "sh", "-c", script]);
    await expect.poll(() => running.stdout.toString()).toBe("ready\n");
    running.child.kill("SIGINT");
    expect(await running.ended).toEqual({ exitCode: 9, stdout: "ready\ncaught\n", stderr: "" });
  });

  test("that is interrupted while the command starts leaves no command running", async () => {
    await using proxy = await delayRequest(server.url, "POST", `/sandboxes/${id}/commands`);
    const words = ["exec", "--name", "late", id, "--", "sleep", "1000"];
    await using running = new RunningAtoll({ ...server, url: proxy.url }, words);
    await proxy.arrived;
    running.child.kill("SIGINT");
    await expect.poll(() => running.stderr).toContain("Interrupted: what was being started is ended");
    proxy.release();
    expect(await running.ended).toMatchObject({ exitCode: 130, stdout: "" });
    const commands = async () => JSON.parse((await runAtoll(server, ["ps", "--all", "--json", id])).stdout).commands;
    await expect.poll(commands).toContainEqual(expect.objectContaining({ name: "late", signal: "SIGKILL" }));
  });

  test("ends together with the command when its output is closed", async () => {
    await using running = new RunningAtoll(server, ["exec", "--name", "endless", id, "--", "yes"]);
    await expect.poll(() => running.stdout.length).toBeGreaterThan(0);
    running.child.stdout.destroy();
    expect((await running.ended).exitCode).toBe(141);
    const endless = async () => {
      const { commands } = JSON.parse((await runAtoll(server, ["ps", "--all", "--json", id])).stdout);
      return commands.find(({ name }: { name?: string }) => name === "endless").signal;
    };
    await expect.poll(endless).toBe("SIGPIPE");
  });
});

describe("a command in the background", () => {
  const script = "echo one; echo two >&2; read line; echo got $line; exit 6";

  test("is followed by logs -f and ended by attach, each in a separate process", async () => {
    // The command's input stays open for the attach below.
    await using first = new RunningAtoll(server, ["exec", "-i", "--name", "talk", id, "--", "sh", "-c", script]);
    await expect.poll(() => first.stdout.toString()).toBe("one\n");
    await using follower = new RunningAtoll(server, ["logs", "-f", id, "talk"]);
    await expect.poll(() => follower.stdout.toString()).toBe("one\n");
    first.child.kill("SIGKILL");
    const attached = await runAtoll(server, ["attach", "--from", "4", id, "talk"], { stdin: "this\n" });
    expect(attached).toEqual({ exitCode: 6, stdout: "got this\n", stderr: "two\n" });
    expect(await follower.ended).toEqual({ exitCode: 0, stdout: "one\ngot this\n", stderr: "two\n" });
  });

  test("is identified by its id, listed, and shows its output so far", async () => {
    const { stdout } = await exec(["-d", id, "--", "sh", "-c", "echo so far; exec sleep 1000"]);
    const commandId = stdout.trim();
    expect(commandId).toMatch(/^cmd[a-z0-9]{20}$/);
    await expect
      .poll(async () => (await runAtoll(server, ["logs", id, commandId.slice(0, 10)])).stdout)
      .toBe("so far\n");
    const listed = await runAtoll(server, ["ps", id]);
    expect(listed.stdout).toMatch(new RegExp(`^${commandId}\t-\trunning\t\\S+Z\tsh -c `, "m"));
  });

  test("goes on when attach is interrupted", async () => {
    const { stdout } = await exec(["-d", "--name", "stays", id, "--", "sh", "-c", "echo here; exec sleep 1000"]);
    await using attached = new RunningAtoll(server, ["attach", id, "stays"]);
    await expect.poll(() => attached.stdout.toString()).toBe("here\n");
    attached.child.kill("SIGINT");
    expect((await attached.ended).exitCode).toBe(130);
    const listed = await runAtoll(server, ["ps", "--json", id]);
    expect(JSON.parse(listed.stdout).commands).toContainEqual(
      expect.objectContaining({ id: stdout.trim(), state: "running" }),
    );
  });
});
