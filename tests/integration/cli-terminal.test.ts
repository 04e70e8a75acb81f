import { readdir, readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll } from "../support/atoll-command.ts";
import { delayRequest } from "../support/delayed-request.ts";
import { Terminal } from "../support/terminal.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const calm = { newlines: true, echo: true, canonical: true, signals: true };

let server: TestServer;
let id: string;

beforeAll(async () => {
  server = await startTestServer();
  id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
});
afterAll(async () => {
  await server.dispose();
});

describe("exec -t", () => {
  test("gives the command a terminal of the same size, and follows changes of the size", async () => {
    const script = "trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; while :; do sleep 0.1; done";
    await using terminal = new Terminal(server, ["exec", "-t", id, "--", "bash", "-c", script]);
    await terminal.shows("24 80\r\n");
    terminal.resize(40, 132);
    await terminal.shows("40 132\r\n");
    terminal.resize(10, 20);
    await terminal.shows("10 20\r\n");
  });

  test("shows every byte as it was written: a line feed gets no carriage return", async () => {
    const script = String.raw`stty -opost; printf 'a\nb\r\n'`;
    await using terminal = new Terminal(server, ["exec", "-t", id, "--", "bash", "-c", script]);
    expect(await terminal.ended).toEqual({ exitCode: 0, modes: calm });
    expect(terminal.screen).toBe("a\nb\r\n");
  });

  test("sends Ctrl-C to the command, exits with its code and restores the terminal", async () => {
    const script = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.1; done";
    await using terminal = new Terminal(server, ["exec", "-it", id, "--", "bash", "-c", script]);
    await terminal.shows("ready");
    terminal.type("\u0003");
    expect(await terminal.ended).toEqual({ exitCode: 7, modes: calm });
    expect(terminal.screen).toContain("caught");
  });

  test("restores the terminal after a signal from outside, whatever mode a program inside has set", async () => {
    const script = String.raw`printf '\033[?1049h\033[?25l'; echo ready; exec sleep 1000`;
    await using terminal = new Terminal(server, ["exec", "-t", "--name", "left", id, "--", "bash", "-c", script]);
    await terminal.shows("ready");
    terminal.signal("SIGTERM");
    expect(await terminal.ended).toEqual({ exitCode: 143, modes: calm });
    expect(terminal.screen).toContain("\u001B[?1047l\u001B[?25h");
    expect(terminal.screen).toMatch(/return to it with: atoll attach \w+ cmd\w+/);
    const { commands } = JSON.parse((await runAtoll(server, ["ps", "--json", id])).stdout);
    expect(commands).toContainEqual(expect.objectContaining({ name: "left", state: "running" }));
  });
});

/** Returns the command lines of all processes that contain this word. */
async function processesWith(word: string): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "")));
  return lines.filter((line) => line.split("\0").includes(word));
}

test("a closed terminal ends atoll and not the command", async () => {
  const name = `hangup-${process.pid}`;
  {
    await using terminal = new Terminal(server, [
      "exec",
      "-t",
      "--name",
      name,
      id,
      "--",
      "sh",
      "-c",
      "echo ready; cat",
    ]);
    await terminal.shows("ready");
  }
  await expect.poll(() => processesWith(name)).toEqual([]);
  const { commands } = JSON.parse((await runAtoll(server, ["ps", "--json", id])).stdout);
  expect(commands).toContainEqual(expect.objectContaining({ name, state: "running" }));
});

describe("shell", () => {
  test("runs commands, shows their output, and exits with its exit code", async () => {
    await using terminal = new Terminal(server, ["shell", "-e", "PS1=here> ", "-e", "PROMPT_COMMAND=", id]);
    await terminal.shows(/[>#$] ?$/);
    terminal.type("echo $((6 * 7)) $TERM\r");
    await terminal.shows("42 xterm");
    terminal.type("exit 5\r");
    expect(await terminal.ended).toEqual({ exitCode: 5, modes: calm });
  });

  test("is left with ~. and attached to again, which repeats the earlier output", async () => {
    await using first = new Terminal(server, ["shell", id]);
    await first.shows(/[>#$] ?$/);
    first.type("here=kept; echo in $((1 + 1))\r");
    await first.shows("in 2");
    first.type("\r~.");
    expect(await first.ended).toEqual({ exitCode: 0, modes: calm });
    const commandId = /atoll attach \w+ (cmd\w+)/.exec(first.screen)?.[1] ?? "";
    await using second = new Terminal(server, ["attach", id, commandId]);
    await second.shows("in 2");
    second.type("echo still $here\r");
    await second.shows("still kept");
    second.type("exit\r");
    expect(await second.ended).toEqual({ exitCode: 0, modes: calm });
  });

  test("gives a hint where there is no terminal", async () => {
    const { exitCode, stderr } = await runAtoll(server, ["shell", id]);
    expect(exitCode).toBe(125);
    expect(stderr).toContain(`hint: Run commands with "atoll exec -i ${id} -- sh" instead.`);
  });
});

describe("the progress of a wait on a terminal", () => {
  test.for([
    [["ps", "ID"], "GET", "/sandboxes/ID/commands", "Asking"],
    [["ps", "PREFIX"], "GET", "/sandboxes", "Looking for the sandbox"],
    [["logs", "ID", "said"], "GET", "/sandboxes/ID/commands", "Looking for the command"],
    [["exec", "-d", "ID", "--", "true"], "POST", "/sandboxes/ID/commands", "Starting"],
    [["run", "--", "true"], "POST", "/run", "Running"],
    [["stats", "--no-stream", "ID"], "GET", "/sandboxes/ID/usage", "Measuring"],
    [["key", "ls"], "GET", "/keys", "Asking"],
    [["config"], "GET", "/config", "Asking"],
    [["template", "ls"], "GET", "/templates", "Asking"],
    [["port", "ID", "8000"], "GET", "/sandboxes/ID/ports/8000", "Asking"],
  ] as const)("is shown by %j, and erased afterwards", async ([words, method, path, shown]) => {
    await runAtoll(server, ["exec", "--name", "said", id, "--", "true"]);
    await using proxy = await delayRequest(server.url, method, path.replace("ID", id));
    const filled = words.map((word) => (word === "PREFIX" ? id.slice(0, 12) : word.replace("ID", id)));
    await using terminal = new Terminal({ ...server, url: proxy.url }, filled);
    await proxy.arrived;
    await terminal.shows(`\r\u001B[2K${shown} · 1s`);
    proxy.release();
    await expect.poll(() => terminal.screen.split(" · ").at(-1)).toContain("s\r\u001B[2K");
    // A run removes its sandbox after its output, and the tests below count sandboxes.
    await terminal.ended;
  });

  test("is erased at the first output of a run", async () => {
    await using proxy = await delayRequest(server.url, "POST", "/run");
    const words = ["run", "--", "sh", "-c", "echo first; sleep 1"];
    await using terminal = new Terminal({ ...server, url: proxy.url }, words);
    await proxy.arrived;
    await terminal.shows("Running · 1s");
    proxy.release();
    await terminal.ended;
    expect(terminal.screen.split("first\r\n")[1]).toBe("");
  });

  test("is not shown with --json", async () => {
    await using proxy = await delayRequest(server.url, "GET", `/sandboxes/${id}/usage`);
    await using terminal = new Terminal({ ...server, url: proxy.url }, ["stats", "--no-stream", "--json", id]);
    await using plain = new Terminal({ ...server, url: proxy.url }, ["stats", "--no-stream", id]);
    await plain.shows("Measuring · 2s");
    proxy.release();
    await terminal.ended;
    expect(terminal.screen).toMatch(/^\{"sandboxes":.*\}\r\n$/);
  });
});

describe("on a terminal", () => {
  test("ls prints a table with a header and colour", async () => {
    await using terminal = new Terminal(server, ["ls"]);
    await terminal.ended;
    expect(terminal.screen).toContain("\u001B[1mSTATE\u001B[22m");
    expect(terminal.screen).toContain("\u001B[32mrunning\u001B[39m");
  });

  test("NO_COLOR keeps the table and removes the colour", async () => {
    await using terminal = new Terminal(server, ["ls"], { NO_COLOR: "1" });
    await terminal.ended;
    expect(terminal.screen).toContain("STATE");
    expect(terminal.screen).not.toContain("\u001B");
  });

  test("stats draws its table in place until Ctrl-C, and restores the cursor", async () => {
    await using terminal = new Terminal(server, ["stats", "--interval", "100ms", id]);
    await terminal.shows("\u001B[2A\r\u001B[0J");
    terminal.type("\u0003");
    expect(await terminal.ended).toEqual({ exitCode: 130, modes: calm });
    expect(terminal.screen).toSatisfy((screen: string) => screen.startsWith("\u001B[?25l"));
    expect(terminal.screen).toSatisfy((screen: string) => screen.endsWith("\u001B[?25h"));
  });

  test("kill --all asks, and the answer no changes nothing", async () => {
    await using terminal = new Terminal(server, ["kill", "--all"]);
    await terminal.shows("Kill 1 sandbox? [y/N]");
    terminal.type("n\r");
    expect((await terminal.ended).exitCode).toBe(0);
    expect((await runAtoll(server, ["ls", "-q"])).stdout).toBe(`${id}\n`);
  });
});
