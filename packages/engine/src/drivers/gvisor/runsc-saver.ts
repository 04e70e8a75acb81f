import { readFile } from "node:fs/promises";
import { type HostProcess, run, startHostProcess } from "@atoll/host";
import { deadlineAfter } from "@atoll/protocol";
import type { CheckpointLayout } from "../../store/layout.ts";
import type { Saver } from "../driver.ts";
import { imageName } from "./runsc-control.ts";

/** Writing gigabytes of memory takes a while. */
export const saveTimeoutMs = 10 * 60_000;

/** Writes down how the program ended, also if nobody waits for it any more. */
const recordOutcome =
  'out=$1; shift; "$@" 2>"$out.stderr"; code=$?; echo $code >"$out.new" && mv "$out.new" "$out"; exit $code';

/** How the guest's binary says that it has asked for nothing yet. */
const exitNotAsked = 3;

export interface SaverOptions {
  guestPath: string;
  socketPath: string;
  /** What is asked of the sandbox on its socket. Undefined: runsc's own command has to do it. */
  request: string | undefined;
  /** Of that command, but for where to. */
  command: (words: readonly string[]) => string[];
  target: CheckpointLayout;
  fail: (stderr: string) => Error;
}

/**
 * The program that asks on the socket waits for a word on its stdin, and for nothing once that is closed: starting it
 * takes longer than asking.
 */
export class RunscSaver implements Saver {
  readonly #options: SaverOptions;
  /** Resolves to undefined if it cannot be started, or is not needed. */
  #asker: Promise<HostProcess | undefined> | undefined;

  constructor(options: SaverOptions) {
    this.#options = options;
  }

  getReady(): void {
    this.#asker ??= startAsker(this.#options).catch(() => undefined);
  }

  async save(): Promise<void> {
    const { target, command, fail } = this.#options;
    let exitCode = await this.#ask();
    if (exitCode === exitNotAsked) {
      const words = command(["checkpoint", "--image-path", target.memoryDir]);
      const options = { signal: deadlineAfter(saveTimeoutMs), timeoutMs: saveTimeoutMs };
      ({ exitCode } = await run("/bin/sh", ["-c", recordOutcome, "sh", target.outcomeFile, ...words], options));
    }
    if (exitCode === 0) return;
    throw fail(await readFile(`${target.outcomeFile}.stderr`, "utf8").catch(() => ""));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const asker = await this.#asker;
    await asker?.closeStdin();
    await asker?.wait();
  }

  async #ask(): Promise<number | null> {
    this.getReady();
    const asker = await this.#asker;
    if (asker === undefined) return exitNotAsked;
    // One that has died has asked for nothing.
    await asker.writeStdin("\n").catch(() => undefined);
    await asker.closeStdin();
    return (await asker.wait()).exitCode;
  }
}

async function startAsker({ guestPath, socketPath, request, target }: SaverOptions): Promise<HostProcess | undefined> {
  if (request === undefined) return undefined;
  const words = ["checkpoint", socketPath, target.memoryDir, imageName, target.outcomeFile, request];
  return startHostProcess(guestPath, words, {
    signal: deadlineAfter(saveTimeoutMs),
    timeoutMs: saveTimeoutMs,
    stdin: "pipe",
    stdout: "ignore",
    stderr: "ignore",
  });
}
