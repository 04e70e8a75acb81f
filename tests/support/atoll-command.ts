import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("../bin/atoll.mjs", import.meta.resolve("@atoll/cli")));

/** The server that `atoll` connects to. Nothing else of the environment could change what `atoll` does. */
export interface CommandServer {
  url: string;
  key: string;
}

export interface CommandOutcome {
  exitCode: number | null;
  stdout: string;
  stderr: string;
}

export function atollEnvironment(server: CommandServer | undefined, more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const { PATH, ATOLL_TEST_ROOT } = process.env;
  const where = server === undefined ? {} : { ATOLL_API_URL: server.url, ATOLL_API_KEY: server.key };
  return { PATH, HOME: ATOLL_TEST_ROOT, TERM: "xterm", ...where, ...more };
}

/** Returns the command line of the program. It starts by its usual entry, as for a user. */
export function atollArgv(words: readonly string[]): [file: string, ...args: string[]] {
  return [process.execPath, program, ...words];
}

/** A running `atoll`, connected by pipes. */
export class RunningAtoll implements AsyncDisposable {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<CommandOutcome>;
  stdout = Buffer.alloc(0);
  stderr = "";

  constructor(server: CommandServer | undefined, words: readonly string[], more: NodeJS.ProcessEnv = {}) {
    const [file, ...args] = atollArgv(words);
    this.child = spawn(file, args, { env: atollEnvironment(server, more) });
    this.child.stdout.on("data", (data: Buffer) => {
      this.stdout = Buffer.concat([this.stdout, data]);
    });
    this.child.stderr.on("data", (data: Buffer) => {
      this.stderr += data.toString();
    });
    // A command may end before it has read its input.
    this.child.stdin.on("error", () => undefined);
    this.ended = once(this.child, "close").then(([exitCode]) => ({
      exitCode: exitCode as number | null,
      stdout: this.stdout.toString(),
      stderr: this.stderr,
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill("SIGKILL");
    await this.ended;
  }
}

/** Runs `atoll` and waits until it ends. */
export async function runAtoll(
  server: CommandServer | undefined,
  words: readonly string[],
  { stdin = "", env = {} }: { stdin?: string | Buffer; env?: NodeJS.ProcessEnv } = {},
): Promise<CommandOutcome> {
  await using running = new RunningAtoll(server, words, env);
  running.child.stdin.end(stdin);
  return await running.ended;
}
