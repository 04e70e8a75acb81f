import { readFile } from "node:fs/promises";
import { type HostProcess, run, startHostProcess } from "@atoll/host";
import { deadlineAfter } from "@atoll/protocol";
import type { CheckpointLayout } from "../../store/layout.ts";
import type { Saver } from "../driver.ts";
import { imageName } from "./runsc-control.ts";

/** It takes a while to write gigabytes of memory. */
export const saveTimeoutMs = 10 * 60_000;

/** Writes how the program ended to a file, also if no process waits for it any more. */
const recordOutcome =
  'out=$1; shift; "$@" 2>"$out.stderr"; code=$?; echo $code >"$out.new" && mv "$out.new" "$out"; exit $code';

/** The guest's binary exits with this code when it has sent no request. */
const exitNotAsked = 3;

export interface SaverOptions {
  guestPath: string;
  socketPath: string;
  /** The request for the sandbox's socket. Undefined if runsc's own command must save the container. */
  request: string | undefined;
  /** Returns the command line of that command for these words. */
  command: (words: readonly string[]) => string[];
  target: CheckpointLayout;
  fail: (stderr: string) => Error;
}

/**
 * Saves with a program that is started in advance, because the start takes longer than the request. It waits for a byte
 * on its stdin; if its stdin is closed, it exits without sending the request.
 */
export class RunscSaver implements Saver {
  readonly #options: SaverOptions;
  /** Resolves to undefined if the program cannot be started, or is not needed. */
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
    // A program that has died has sent no request.
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
