import { readFile } from "node:fs/promises";
import { startHostProcess, type HostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { AppEnd, AppHost, AppProcess, AppUsage, LaunchOptions } from "./app-host.ts";
import { nodeFlags } from "./node-flags.ts";

/** Runs an app as a child process with a clean environment. This level separates honest code; it is no wall. */
export class ProcessHost implements AppHost {
  readonly level = "process";

  async missing(): Promise<string[]> {
    return [];
  }

  async enforcement(): Promise<string[]> {
    return ["JavaScript heap by Node"];
  }

  async launch(options: LaunchOptions): Promise<AppProcess> {
    const child = await startHostProcess(
      process.execPath,
      [...nodeFlags(options.limits), options.runtime, options.folder],
      { signal: options.signal, graceMs: 0, cwd: options.folder, env: options.env, stdin: "pipe" },
    );
    return new ChildApp(child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Each app is killed by the one who launched it.
  }
}

const maxStderrBytes = 64 * 1024;

/** A program of this machine that speaks the wire protocol on stdin and stdout. */
class ChildApp implements AppProcess {
  readonly output: AsyncIterable<Uint8Array>;
  readonly ended: Promise<AppEnd>;
  readonly #child: HostProcess;
  #stderr = Buffer.alloc(0);

  constructor(child: HostProcess) {
    this.#child = child;
    this.output = this.#stdout();
    this.ended = this.#end();
  }

  get pid(): number {
    return this.#child.pid;
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#child.writeStdin(bytes);
  }

  stderrTail(): string {
    return this.#stderr.toString("utf8");
  }

  async usage(): Promise<AppUsage> {
    const [smaps, stat] = await Promise.all([
      readFile(`/proc/${this.pid}/smaps_rollup`, "utf8"),
      readFile(`/proc/${this.pid}/stat`, "utf8"),
    ]);
    // The name of the program may contain spaces and brackets; fields are counted from its end.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const ticks = Number(fields[11]) + Number(fields[12]);
    return {
      memoryBytes: Number(/^Pss:\s+(\d+)/m.exec(smaps)?.[1] ?? 0) * 1024,
      cpuMs: (ticks * 1000) / clockTicks,
      processes: Number(fields[17]),
    };
  }

  async forward(port: number): Promise<{ host: string; port: number }> {
    return { host: "127.0.0.1", port };
  }

  async kill(): Promise<void> {
    await this.#child.kill("SIGKILL");
    await this.#child.wait().catch(() => undefined);
  }

  async *#stdout(): AsyncGenerator<Uint8Array> {
    for await (const { stream, data } of this.#child) {
      if (stream === "stdout") yield data;
      else this.#stderr = Buffer.concat([this.#stderr, data]).subarray(-maxStderrBytes);
    }
  }

  async #end(): Promise<AppEnd> {
    try {
      const { exitCode, signal } = await this.#child.wait();
      if (signal !== null) return { kind: "signal", signal };
      return { kind: "exit", code: exitCode ?? 0 };
    } catch (error) {
      return { kind: "lost", reason: error instanceof SandboxError ? error.message : String(error) };
    }
  }
}

/** Ticks of the kernel's clock in a second, which Linux fixes at 100 for programs. */
const clockTicks = 100;
