import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { SandboxError } from "@atoll/protocol";

/** This is a variable, because the command line works without a server package and so must not import it. */
const serverEntry = "@atoll/server/start";

/** Returns how the server of this installation is started, with these flags. */
export function serverProgram(flags: readonly string[]): { file: string; args: string[] } {
  return { file: process.execPath, args: [findEntry(), ...flags] };
}

function findEntry(): string {
  let entry: string;
  try {
    entry = fileURLToPath(import.meta.resolve(serverEntry));
  } catch (cause) {
    throw missing(cause);
  }
  if (!existsSync(entry)) throw missing();
  return entry;
}

function missing(cause?: unknown): SandboxError {
  return new SandboxError("unsupported", "Cannot start a server: there is none in this installation", {
    suggestion: "Run this on the machine that has it, or use the server of another with --url.",
    cause,
  });
}

export interface ServerProcess {
  /** Asks the server to stop. */
  stop: (signal: "SIGINT" | "SIGTERM") => void;
  ended: Promise<{ exitCode: number | null; signal: NodeJS.Signals | null }>;
}

/**
 * Starts the server on our terminal, in a process group of its own: a Ctrl-C reaches it once, through `stop`. In our
 * group it would get a second one from the terminal, and stop without waiting.
 */
export function startServer(flags: readonly string[]): ServerProcess {
  const { file, args } = serverProgram(flags);
  const child = spawn(file, args, { stdio: "inherit", detached: true });
  const ended = (async () => {
    const [exitCode, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
    return { exitCode, signal };
  })();
  return { stop: (signal) => void child.kill(signal), ended };
}

/** Runs the server program to its end and resolves with its output. */
export async function askServer(
  flags: readonly string[],
  signal: AbortSignal,
): Promise<{ exitCode: number | null; stdout: string; stderr: string }> {
  const { file, args } = serverProgram(flags);
  const child = spawn(file, args, { stdio: ["ignore", "pipe", "pipe"], signal });
  const [stdout, stderr, [exitCode]] = await Promise.all([
    readAll(child.stdout),
    readAll(child.stderr),
    once(child, "close") as Promise<[number | null]>,
  ]);
  return { exitCode, stdout, stderr };
}

async function readAll(stream: AsyncIterable<Buffer>): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces).toString("utf8");
}
