// @module-tag gvisor
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { repositoryRoot } from "../../tools/setup/paths.mjs";
import { ApiClient } from "../support/api-client.ts";
import { atollArgv, atollEnvironment } from "../support/atoll-command.ts";
import { startTestServerProcess, type TestServerProcess } from "../support/test-server.ts";

/** The output of each command of the page. A command that is not listed here fails the test. */
const shown: Readonly<Record<string, RegExp>> = {
  "npx atoll run -l python -c 'print(6 * 7)'": /^42\n$/,
  "id=$(npx atoll create)": /^$/,
  "npx atoll exec $id -- python3 -c 'print(6 * 7)'": /^42\n$/,
  "npx atoll exec -d --name web $id -- python3 -u -m http.server 8000": /^cmd\w+\n$/,
  "npx atoll logs $id web": /^(Serving HTTP .*\n)?$/,
  "npx atoll shell $id": /in the sandbox\r\n/,
  "npx atoll pause $id": /^\w+\n$/,
  "npx atoll exec $id -- python3 -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:8000\").status)'":
    /^200\n$/,
  "npx atoll fork $id": /^\w+\n$/,
  "npx atoll snapshot create $id tuesday && npx atoll create --snapshot tuesday": /tuesday[^]*\n\w+\n$/,
};

/** This line is typed into the shell. It first waits for the web server; a person types slowly enough without that. */
const typed = "until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done; echo in the sandbox; exit";

/** A shell needs a terminal, and a test has none. */
const inTerminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";

let server: TestServerProcess;

beforeAll(async () => {
  server = await startTestServerProcess();
});

afterAll(async () => {
  await server?.dispose();
});

/** Returns the commands of the walk-through, without their comments. */
async function commandsOfThePage(): Promise<string[]> {
  const page = await readFile(join(repositoryRoot, "README.md"), "utf8");
  const walk = page.split("\n## The first five minutes\n")[1]?.split("\n## ")[0] ?? "";
  return [...walk.matchAll(/```sh\n([^]*?)```/g)]
    .flatMap(([, block = ""]) => block.split("\n"))
    .map((line) => line.replace(/ +# .*/, "").trim())
    .filter((line) => line !== "");
}

interface Outcome {
  command: string;
  exitCode: number;
  stdout: string;
  stderr: string;
}

/** Types the commands into one shell, one after the other. */
async function typeIn(commands: readonly string[]): Promise<Outcome[]> {
  const dir = join(server.dataDir, "readme");
  await mkdir(dir);
  const atoll = atollArgv([])
    .map((word) => `'${word}'`)
    .join(" ");
  const lines = commands.map(
    (command, index) => `{ ${command}\n} >${dir}/${index}.out 2>${dir}/${index}.err; echo $? >${dir}/${index}.code`,
  );
  const script = join(dir, "script");
  const npx = `npx() {
    if [ "$2" = shell ]; then python3 -c '${inTerminal}' ${atoll} "\${@:2}" <<<"$TYPED"
    else ${atoll} "\${@:2}"
    fi
  }`;
  await writeFile(script, [npx, ...lines].join("\n"));
  const env = atollEnvironment(server, { TYPED: typed });
  await once(spawn("bash", [script], { env, stdio: ["ignore", "inherit", "inherit"] }), "close");
  const read = (index: number, what: string) => readFile(join(dir, `${index}.${what}`), "utf8");
  return Promise.all(
    commands.map(async (command, index) => ({
      command,
      exitCode: Number(await read(index, "code")),
      stdout: await read(index, "out"),
      stderr: await read(index, "err"),
    })),
  );
}

test("the line that the first start prints runs Python", async () => {
  const lines = /\n {2}(curl [^]*?)\n\n/.exec(server.greeting)?.[1] ?? "";
  const shell = spawn("bash", ["-c", lines], { env: atollEnvironment(server), stdio: ["ignore", "pipe", "inherit"] });
  let stdout = "";
  shell.stdout.on("data", (data: Buffer) => (stdout += data.toString()));
  await once(shell, "close");
  expect(JSON.parse(stdout)).toMatchObject({ stdout: "42\n" });
});

test("the first five minutes of README.md are as the page describes them", async () => {
  const commands = await commandsOfThePage();
  expect(commands).toEqual(Object.keys(shown));
  for (const { command, exitCode, stdout, stderr } of await typeIn(commands)) {
    const description = `${command} (stderr: ${stderr})`;
    expect.soft(exitCode, description).toBe(0);
    expect.soft(stdout, description).toMatch(shown[command] ?? /nothing/);
  }

  // The page says that sandboxes and their commands survive Ctrl-C and another start of the server.
  const { key, dataDir } = server;
  await server.signal("SIGINT");
  server = await startTestServerProcess({ dataDir });
  const api = new ApiClient(server.url, key);
  const { body } = await api.ask<{ sandboxes: { id: string; state: string }[] }>("GET", "/sandboxes");
  expect(body.sandboxes.map(({ state }) => state)).toEqual(["running", "running", "running"]);
});
