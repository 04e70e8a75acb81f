import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { text } from "node:stream/consumers";
import type { SanitizerReports } from "./guest-program.ts";

export interface NativeLauncher {
  child: ChildProcess;
  steps: Promise<string>;
  exitCode: Promise<number | null>;
}

const unrelated = openSync("/dev/null", "r");

/** Starts the guest's program as the parent of a container. */
export function launchNative(
  program: string,
  args: readonly string[],
  reports: SanitizerReports,
  stdin: "ignore" | "pipe" = "ignore",
): NativeLauncher {
  const child = spawn(program, ["launch", ...args], {
    // The last descriptor must not be passed on.
    stdio: [stdin, "ignore", "ignore", "pipe", unrelated],
    env: { ...process.env, ...reports.environment },
  });
  const pipe = child.stdio[3];
  if (pipe === null || pipe === undefined || !("readable" in pipe)) throw new Error("Descriptor 3 is no pipe");
  const exitCode = once(child, "exit").then(([code]: (number | null)[]) => code ?? null);
  return { child, steps: text(pipe as NodeJS.ReadableStream), exitCode };
}
