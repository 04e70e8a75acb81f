import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { hostEnvironment } from "../host-command.ts";

const program = fileURLToPath(new URL("../../../packages/server/bin/atoll-server.mjs", import.meta.url));

export interface ServerProcessOptions {
  /** The directory for the data directory and the log. It is created if it is missing. */
  dir: string;
  /** Flags of the server program. */
  flags?: readonly string[];
}

/**
 * A server as `npm start` runs it, in a separate process with its own data directory. It can be killed and started
 * again.
 */
export class ServerProcess implements AsyncDisposable {
  readonly dataDir: string;
  readonly logFile: string;
  #flags: readonly string[];
  #child: ChildProcess | undefined;
  #port = "0";
  #key = "";

  private constructor({ dir, flags = [] }: ServerProcessOptions) {
    this.dataDir = join(dir, "data");
    this.logFile = join(dir, "server.log");
    this.#flags = flags;
  }

  static async start(options: ServerProcessOptions): Promise<ServerProcess> {
    await mkdir(options.dir, { recursive: true });
    const server = new ServerProcess(options);
    await server.restart();
    return server;
  }

  get port(): number {
    return Number(this.#port);
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** The admin key, which the server prints at its first start. */
  get key(): string {
    return this.#key;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Starts the server again on the same data directory and port. Resolves when it listens. */
  async restart(): Promise<void> {
    const log = openSync(this.logFile, "a");
    const argv = ["--data-dir", this.dataDir, "--port", this.#port, "--kill-on-exit", "--log-level", "warn"];
    argv.push("--policy", '{"drivers":["gvisor","local"]}');
    this.#child = spawn(
      process.execPath,
      ["--conditions=source", "--import", "tsx", program, ...argv, ...this.#flags],
      {
        env: hostEnvironment,
        stdio: ["ignore", "pipe", log],
        // On Ctrl-C only the benchmark acts, and ends the server in order.
        detached: true,
      },
    );
    closeSync(log);
    const greeting = await this.#readGreeting(this.#child);
    this.#port = /listens on \S+:(\d+)/.exec(greeting)?.[1] ?? this.#port;
    this.#key = /ATOLL_API_KEY=(atk_\S+)/.exec(greeting)?.[1] ?? this.#key;
  }

  /** Kills the server with SIGKILL, so that it cannot clean up. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** Returns a function that looks up the present value of a metric without labels in `/metrics`. */
  async metrics(): Promise<(name: string) => number> {
    const response = await fetch(`${this.url}/metrics`, { headers: { authorization: `Bearer ${this.#key}` } });
    const text = await response.text();
    return (name) => {
      const value = new RegExp(`^${name} (\\S+)$`, "m").exec(text)?.[1];
      if (value === undefined) throw new Error(`The server does not report ${name}: ${text.slice(0, 200)}`);
      return Number(value);
    };
  }

  /** Returns the resident memory of the server's own process. */
  async memoryBytes(): Promise<number> {
    const status = await readFile(`/proc/${this.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
  }

  /** Ends the server and removes all its sandboxes, whatever state it is in. */
  async [Symbol.asyncDispose](): Promise<void> {
    // Only a running server can remove its sandboxes.
    if (this.#hasEnded()) await this.restart();
    await this.#end("SIGTERM");
  }

  #hasEnded(): boolean {
    return this.#child === undefined || this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || this.#hasEnded()) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }

  async #readGreeting({ stdout }: ChildProcess): Promise<string> {
    if (stdout === null) throw new Error("The server has no output");
    let text = "";
    for await (const line of createInterface({ input: stdout })) {
      text += `${line}\n`;
      if (line.startsWith("Documentation:")) return text;
    }
    throw new Error(`The server did not start: ${await readFile(this.logFile, "utf8")}`);
  }
}
