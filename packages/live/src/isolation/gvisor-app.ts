import { messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { Atoll, CommandHandle, CommandInfo, Sandbox } from "@atoll/sdk";
import type { AppEnd, AppProcess, AppUsage } from "./app-host.ts";
import { HttpRelay } from "./http-relay.ts";

const maxStderrBytes = 64 * 1024;
/**
 * A sandbox that needs more memory than its limit may stall instead of being ended by the kernel. One that is this full
 * twice in a row is ended.
 */
const memoryCheck = { intervalMs: 1_000, share: 0.98, readings: 2 };

/**
 * An app that is a command in a sandbox of an Atoll server. The command and its output are kept by the server, so that
 * nothing is lost when the connection breaks or the server is started again.
 */
export class GvisorApp implements AppProcess {
  readonly pid = undefined;
  readonly output: AsyncIterable<Uint8Array>;
  readonly ended: Promise<AppEnd>;
  readonly #client: Atoll;
  readonly #sandbox: Sandbox;
  readonly #command: CommandHandle;
  readonly #relay: HttpRelay;
  #stderr = Buffer.alloc(0);
  #setEnd: (end: AppEnd) => void = () => undefined;
  readonly #memoryWatch: NodeJS.Timeout;

  constructor(client: Atoll, sandbox: Sandbox, command: CommandHandle, memoryBytes: number) {
    this.#client = client;
    this.#sandbox = sandbox;
    this.#command = command;
    this.#relay = new HttpRelay((port) => sandbox.getUrl(port));
    this.ended = new Promise((resolve) => (this.#setEnd = resolve));
    this.output = this.#stdout();
    this.#memoryWatch = this.#watchMemory(memoryBytes * memoryCheck.share);
    this.#memoryWatch.unref();
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#command.sendStdin(bytes);
  }

  stderrTail(): string {
    return this.#stderr.toString("utf8");
  }

  async usage(): Promise<AppUsage> {
    const { memoryBytes, cpuMs, processes } = await this.#sandbox.getMetrics();
    return { memoryBytes, cpuMs, processes };
  }

  async reachable(): Promise<void> {
    await this.#client.isReady();
  }

  forward(port: number): Promise<{ host: string; port: number }> {
    return this.#relay.forward(port);
  }

  async kill(): Promise<void> {
    await this.#finish({ kind: "signal", signal: "SIGKILL" });
  }

  #watchMemory(fullBytes: number): NodeJS.Timeout {
    let readings = 0;
    const read = async (): Promise<void> => {
      const { memoryBytes } = await this.usage();
      readings = memoryBytes < fullBytes ? 0 : readings + 1;
      if (readings === memoryCheck.readings) await this.#finish({ kind: "oom" });
    };
    // A server that does not answer is not what this looks for.
    return setInterval(() => void read().catch(() => undefined), memoryCheck.intervalMs);
  }

  async *#stdout(): AsyncGenerator<Uint8Array> {
    try {
      for await (const event of this.#command.events()) {
        if (event.type === "stdout") yield event.data;
        else if (event.type === "stderr")
          this.#stderr = Buffer.concat([this.#stderr, event.data]).subarray(-maxStderrBytes);
        else if (event.type === "ended") await this.#finish(await this.#endOf(event.command));
        else throw new SandboxError("internal", "Cannot read what the app wrote: it wrote more than the server keeps");
      }
    } catch (error) {
      await this.#finish(await this.#endOf(undefined, error));
    }
  }

  async #endOf(command: CommandInfo | undefined, error?: unknown): Promise<AppEnd> {
    const info = await this.#sandbox.getInfo().catch(() => undefined);
    const isOutOfMemory =
      command?.outOfMemory === true ||
      info?.reason?.kind === "memory" ||
      this.stderrTail().includes("JavaScript heap out of memory");
    if (isOutOfMemory) return { kind: "oom" };
    if (typeof command?.signal === "string") return { kind: "signal", signal: command.signal };
    if (typeof command?.exitCode === "number") return { kind: "exit", code: command.exitCode };
    const reason = info?.reason?.message ?? command?.lostBecause ?? (error === undefined ? "" : messageOf(error));
    return { kind: "lost", reason: reason === "" ? "its end is not known" : reason };
  }

  /** Removes the sandbox with everything in it. The first end that is known is the one that is reported. */
  async #finish(end: AppEnd): Promise<void> {
    clearInterval(this.#memoryWatch);
    // A server that does not answer ends the sandbox itself, because no requests for it come any more.
    await this.#sandbox.kill().catch(() => undefined);
    this.#command.close();
    await this.#relay[Symbol.asyncDispose]();
    this.#setEnd(end);
  }
}
