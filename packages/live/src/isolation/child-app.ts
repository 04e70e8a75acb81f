import { readFile } from "node:fs/promises";
import { startHostProcess, type HostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { AppCgroup } from "./app-cgroup.ts";
import { createAppCgroup } from "./app-cgroup.ts";
import type { AppEnd, AppProcess, AppUsage, LaunchOptions } from "./app-host.ts";

const maxStderrBytes = 64 * 1024;

/** A program of this machine that speaks the wire protocol on stdin and stdout, in a cgroup where there are any. */
export class ChildApp implements AppProcess {
  readonly output: AsyncIterable<Uint8Array>;
  readonly ended: Promise<AppEnd>;
  readonly #child: HostProcess;
  readonly #cgroup: AppCgroup | undefined;
  readonly #forward: AppProcess["forward"];
  #stderr = Buffer.alloc(0);

  private constructor(child: HostProcess, cgroup: AppCgroup | undefined, forward: AppProcess["forward"]) {
    this.#child = child;
    this.#cgroup = cgroup;
    this.#forward = forward;
    this.output = this.#stdout();
    this.ended = this.#end();
  }

  /** Starts a command with the limits of the app. `extraFds` are its descriptors from 3 on. */
  static async start(
    command: readonly string[],
    { id, limits, env, folder, signal }: LaunchOptions,
    { forward, extraFds = [] }: { forward: AppProcess["forward"]; extraFds?: readonly number[] },
  ): Promise<ChildApp> {
    const cgroup = await createAppCgroup(id, limits);
    // The kernel ends the app when its manager is gone, also one that does not notice the end of its input.
    const bound = ["setpriv", "--pdeathsig", "KILL", "--"];
    const limited = [...bound, "prlimit", `--fsize=${limits.fileBytes}`, "--core=0", "--", ...command];
    const [file = "", ...args] = cgroup === undefined ? limited : cgroup.wrap(limited);
    try {
      const child = await startHostProcess(file, args, {
        signal,
        graceMs: 0,
        cwd: folder,
        env,
        stdin: "pipe",
        extraFds,
      });
      return new ChildApp(child, cgroup, forward);
    } catch (error) {
      await cgroup?.remove();
      throw error;
    }
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
    const pids = this.#cgroup === undefined ? [this.pid] : await this.#cgroup.pids();
    const each = await Promise.all(pids.map((pid) => processUsage(pid)));
    const sum = (of: (usage: AppUsage) => number): number => each.reduce((total, usage) => total + of(usage), 0);
    return {
      memoryBytes: sum(({ memoryBytes }) => memoryBytes),
      cpuMs: (await this.#cgroup?.usage())?.cpuMs ?? sum(({ cpuMs }) => cpuMs),
      processes: each.length,
    };
  }

  async setCpus(cpus: number): Promise<void> {
    if (this.#cgroup === undefined) throw new SandboxError("unsupported", "Cannot limit CPU: there is no cgroup");
    await this.#cgroup.setCpus(cpus);
  }

  forward(port: number): Promise<{ host: string; port: number }> {
    return this.#forward(port);
  }

  async kill(): Promise<void> {
    await this.#child.kill("SIGKILL");
    await this.ended;
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
      const isOutOfMemory =
        (await this.#cgroup?.wasOutOfMemory()) === true || this.stderrTail().includes("JavaScript heap out of memory");
      await this.#cgroup?.remove();
      if (isOutOfMemory) return { kind: "oom" };
      return signal === null ? { kind: "exit", code: exitCode ?? 0 } : { kind: "signal", signal };
    } catch (error) {
      return { kind: "lost", reason: error instanceof SandboxError ? error.message : String(error) };
    }
  }
}

/** Ticks of the kernel's clock in a second, which Linux fixes at 100 for programs. */
const ticksPerSecond = 100;

/** Zero for a process that has ended in between. */
async function processUsage(pid: number): Promise<AppUsage> {
  try {
    const [smaps, stat] = await Promise.all([
      readFile(`/proc/${pid}/smaps_rollup`, "utf8"),
      readFile(`/proc/${pid}/stat`, "utf8"),
    ]);
    // The name of the program may contain spaces and brackets; fields are counted from its end.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return {
      memoryBytes: Number(/^Pss:\s+(\d+)/m.exec(smaps)?.[1] ?? 0) * 1024,
      cpuMs: ((Number(fields[11]) + Number(fields[12])) * 1000) / ticksPerSecond,
      processes: 1,
    };
  } catch {
    return { memoryBytes: 0, cpuMs: 0, processes: 0 };
  }
}
