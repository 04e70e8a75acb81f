import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { once } from "node:events";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { atollArgv, atollEnvironment, type CommandServer } from "./atoll-command.ts";

const driver = fileURLToPath(new URL("terminal.py", import.meta.url));

export interface TerminalEnd {
  exitCode: number;
  /** The modes in which the program left the terminal; a shell needs all of them to be true. */
  modes: { newlines: boolean; echo: boolean; canonical: boolean; signals: boolean };
}

/** Runs `atoll` in a real terminal of 24 rows and 80 columns. */
export class Terminal implements AsyncDisposable {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<TerminalEnd>;
  /** All output so far. */
  screen = "";

  constructor(server: CommandServer, words: readonly string[], env: NodeJS.ProcessEnv = {}) {
    this.#child = spawn("python3", [driver, ...atollArgv(words)], { env: atollEnvironment(server, env) });
    this.#child.stdout.on("data", (data: Buffer) => {
      this.screen += data.toString();
    });
    let report = "";
    this.#child.stderr.on("data", (data: Buffer) => {
      report += data.toString();
    });
    this.ended = once(this.#child, "close").then(() => JSON.parse(report) as TerminalEnd);
    this.ended.catch(() => undefined);
  }

  type(text: string): void {
    this.#order({ type: text });
  }

  resize(rows: number, cols: number): void {
    this.#order({ resize: [rows, cols] });
  }

  signal(name: "SIGTERM" | "SIGINT" | "SIGHUP"): void {
    this.#order({ signal: constants.signals[name] });
  }

  async shows(text: string | RegExp): Promise<void> {
    const isShown = () => (typeof text === "string" ? this.screen.includes(text) : text.test(this.screen));
    // oxlint-disable-next-line vitest/no-standalone-expect -- called from tests only
    await expect.poll(isShown, { interval: 50, message: `the terminal shows ${text}` }).toBe(true);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The program notices that its terminal has closed.
    this.#child.kill("SIGKILL");
    await this.ended.catch(() => undefined);
  }

  #order(order: object): void {
    this.#child.stdin.write(`${JSON.stringify(order)}\n`);
  }
}
