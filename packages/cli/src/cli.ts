import { once } from "node:events";
import type { Atoll } from "@atoll/sdk";
import type { Environment } from "./environment.ts";
import { exitCodes } from "./exit-code.ts";
import { Interruption, type EndingSignal } from "./interruption.ts";
import { Progress } from "./output/progress.ts";
import { styleFor, type Style } from "./output/style.ts";
import { renderTable, type Column } from "./output/table.ts";
import { readSettings, type Settings } from "./settings/settings.ts";

export interface CliStreams {
  stdin: NodeJS.ReadStream;
  stdout: NodeJS.WriteStream;
  stderr: NodeJS.WriteStream;
}

/** The options that every command has. */
export interface SharedOptions {
  json?: boolean;
  url?: string;
  key?: string;
}

const fallbackWidth = 80;

/** One call of `atoll`: its input, its output and its exit code. */
export class Cli {
  readonly stdin: NodeJS.ReadStream;
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly environment: Environment;
  /**
   * Aborts with an `Interruption` at Ctrl-C, at SIGTERM and when the reader of stdout has left, and with an error when
   * stdout fails.
   */
  readonly signal: AbortSignal;
  readonly style: Style;
  exitCode: number = exitCodes.ok;
  /** The exit code for an error: 1, or 125 where 1 could be the command's. */
  failureExitCode: number = exitCodes.failure;
  #options: SharedOptions = {};
  #atoll: Promise<Atoll> | undefined;
  #isWaiting = false;
  #lost: Error | undefined;
  readonly #stop = new AbortController();
  #passOn: ((name: "SIGINT" | "SIGTERM") => void) | undefined;

  constructor(streams: CliStreams, environment: Environment) {
    this.stdin = streams.stdin;
    this.stdout = streams.stdout;
    this.stderr = streams.stderr;
    this.environment = environment;
    this.signal = this.#stop.signal;
    this.style = styleFor(this.stdout, environment);
  }

  begin(options: SharedOptions): void {
    this.#options = options;
  }

  /** Handles a signal: it ends this call, or goes to the function given to `takeSignals`. */
  receive(name: EndingSignal): void {
    if (this.#passOn === undefined || name === "SIGHUP") this.interrupt(name);
    else this.#passOn(name);
  }

  interrupt(reason: EndingSignal | "SIGPIPE"): void {
    this.#stop.abort(new Interruption(reason));
  }

  /**
   * Handles a failure to write to stdout. A reader that has left wants no more; anything else, such as a full disk, is
   * an error.
   */
  loseOutput(cause: NodeJS.ErrnoException): void {
    if (cause.code === "EPIPE" || cause.code === "ECONNRESET") return this.interrupt("SIGPIPE");
    this.#lost ??= new Error(`Cannot write the output: ${cause.message}`, { cause });
    this.#stop.abort(this.#lost);
  }

  /** Waits until everything is written to stdout, and throws if that failed. */
  async assertWritten(): Promise<void> {
    // The error event of a failed write comes after the write's callback.
    await new Promise<void>((resolve) => {
      this.stdout.write("", () => setImmediate(resolve));
    });
    if (this.#lost !== undefined) throw this.#lost;
  }

  /** Passes Ctrl-C and SIGTERM to the caller until the returned function is called. */
  takeSignals(passOn: (name: "SIGINT" | "SIGTERM") => void): () => void {
    this.#passOn = passOn;
    return () => {
      this.#passOn = undefined;
    };
  }

  get isJson(): boolean {
    return this.#options.json === true;
  }

  /** Whether stdout is a terminal. */
  get isTerminal(): boolean {
    return this.stdout.isTTY;
  }

  async settings(): Promise<Settings> {
    return readSettings(this.#options, this.environment);
  }

  /** The one connection of this call. */
  async atoll(): Promise<Atoll> {
    this.#atoll ??= this.#connect();
    return this.#atoll;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The caller of `atoll()` got the error of a connection that could not be made.
    const atoll = await this.#atoll?.catch(() => undefined);
    await atoll?.[Symbol.asyncDispose]();
  }

  async #connect(): Promise<Atoll> {
    const { url, key } = await this.settings();
    // Not every call needs a server, and the SDK is most of the code to load.
    const { Atoll } = await import("@atoll/sdk");
    return new Atoll({ baseUrl: url.value, apiKey: key.value });
  }

  /** Waits while the reader of stdout is slow, so that unread output does not fill the memory. */
  async write(data: string | Uint8Array, stream: "stdout" | "stderr" = "stdout"): Promise<void> {
    if (!this[stream].write(data)) await once(this[stream], "drain", { signal: this.signal });
  }

  async print(line: string): Promise<void> {
    await this.write(`${line}\n`);
  }

  async printJson(value: unknown): Promise<void> {
    await this.print(JSON.stringify(value));
  }

  async printTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): Promise<void> {
    await this.write(this.renderTable(columns, rows));
  }

  renderTable<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string {
    return renderTable(columns, rows, {
      isTerminal: this.isTerminal,
      width: this.stdout.columns ?? fallbackWidth,
      style: this.style,
    });
  }

  /** Writes a message for the user to stderr, so it is never part of what a program reads. */
  note(text: string): void {
    if (!this.isJson) this.stderr.write(`${text}\n`);
  }

  /**
   * Shows on stderr what the call waits for, once that takes more than a second. There is one line: of several things,
   * it shows the first.
   */
  async during<Value>(what: string, work: Promise<Value> | ((progress: Progress) => Promise<Value>)): Promise<Value> {
    const isFirst = !this.#isWaiting;
    const progress = new Progress(this.stderr, what, isFirst && !this.isJson && this.stderr.isTTY);
    this.#isWaiting = true;
    try {
      return await (typeof work === "function" ? work(progress) : work);
    } finally {
      progress.end();
      if (isFirst) this.#isWaiting = false;
    }
  }
}
