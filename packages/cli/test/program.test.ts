import { readFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { CommanderError } from "commander";
import { beforeEach, describe, expect, test } from "vitest";
import { Cli } from "../src/cli.ts";
import { describeCommands } from "../src/command-tree.ts";
import { readEnvironment } from "../src/environment.ts";
import { exitCodeOf } from "../src/exit-code.ts";
import { buildProgram, programFor } from "../src/program.ts";

const all = describeCommands(await buildProgram(new Cli(process, readEnvironment({}))));

let stdout: string;
let cli: Cli;

function stream(take: (text: string) => void): NodeJS.WriteStream {
  const pipe = new PassThrough();
  pipe.on("data", (data: Buffer) => take(data.toString()));
  return pipe as unknown as NodeJS.WriteStream;
}

beforeEach(() => {
  stdout = "";
  const streams = {
    stdin: new PassThrough() as unknown as NodeJS.ReadStream,
    stdout: stream((text) => {
      stdout += text;
    }),
    stderr: stream(() => undefined),
  };
  cli = new Cli(streams, readEnvironment({ HOME: "/nowhere" }));
});

async function parse(...argv: string[]): Promise<void> {
  await (await programFor(cli, argv)).parseAsync(argv, { from: "user" });
}

describe("the command line", () => {
  test("shows its help if no command is named, also of a group", async () => {
    await expect(parse()).rejects.toMatchObject({ code: "commander.help" });
    expect(stdout).toContain("Usage: atoll [options] [command]");
    await expect(parse("key", "--json")).rejects.toMatchObject({ code: "commander.help" });
    expect(stdout).toContain("Usage: atoll key [options] [command]");
  });

  test("suggests the command that was probably meant", async () => {
    await expect(parse("exce")).rejects.toThrow("Did you mean exec?");
    await expect(parse("key", "crate")).rejects.toThrow("Did you mean create?");
  });

  test("suggests the option that was probably meant", async () => {
    await expect(parse("ls", "--lable", "a=b")).rejects.toThrow("Did you mean --label?");
  });

  test("names the help of the command that lacks a word", async () => {
    await expect(parse("snapshot", "create", "4k2")).rejects.toMatchObject({
      message: "Missing required argument 'name'",
      hint: '"atoll snapshot create --help" shows its arguments.',
    });
  });

  test.for(all.map(({ path }) => path.join(" ")))("%s has help and takes --json", async (path) => {
    const words = path.split(" ");
    await expect(parse(...words.slice(0, -1), "help", words.at(-1) ?? "")).rejects.toBeInstanceOf(CommanderError);
    expect(stdout).toContain(`Usage: atoll ${path}`);
    expect(stdout).toContain("--json");
  });

  test("has its exit codes in its help", async () => {
    await expect(parse("--help")).rejects.toBeInstanceOf(CommanderError);
    expect(stdout).toContain("Exit codes:");
    expect(stdout).toContain("124      it reached its time limit");
  });
});

test.for([
  [{ state: "exited", exitCode: 0, signal: null, timedOut: false }, 0],
  [{ state: "exited", exitCode: 3, signal: null, timedOut: false }, 3],
  [{ state: "exited", exitCode: null, signal: "SIGKILL", timedOut: false }, 137],
  [{ state: "exited", exitCode: null, signal: "SIGRT34", timedOut: false }, 162],
  [{ state: "exited", exitCode: null, signal: "SIGKILL", timedOut: true }, 124],
  [{ state: "lost", exitCode: null, signal: null, timedOut: false }, 125],
] as const)("the end %j gives exit code %d", ([command, exitCode]) => {
  expect(exitCodeOf(command)).toBe(exitCode);
});

test("docs/cli.md has a row for each command, with its usage and summary, and no other", () => {
  const rows = readFileSync(new URL("../../../docs/cli.md", import.meta.url), "utf8")
    .split("\n")
    .filter((line) => line.startsWith("| `atoll "))
    .map((line) => line.replaceAll(/ +\|/g, " |"));
  const leaves = all.filter(({ path, hasCommands }) => !hasCommands || path[0] === "config");
  expect(rows).toEqual(leaves.map(({ usage, summary }) => `| \`${usage}\` | ${summary} |`));
});
