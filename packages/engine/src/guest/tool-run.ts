import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { GuestChannel } from "./channel.ts";
import { fileError } from "./errno.ts";
import type { GuestProcess } from "./guest-process.ts";
import { readRecords, RecordCutOff } from "./tool-records.ts";
import { MalformedPayload } from "./wire.ts";

const maxMessageBytes = 4096;

export interface ToolOptions {
  user: string;
  cwd: string;
  stdin: boolean;
  signal?: AbortSignal;
}

/** One run of a tool: its exit code is an errno, its stderr one line for people. */
export class ToolRun {
  readonly process: GuestProcess;
  #message = "";
  #readingStderr: Promise<void> = Promise.resolve();

  private constructor(process: GuestProcess) {
    this.process = process;
  }

  static async start(channel: GuestChannel, argv: string[], options: ToolOptions): Promise<ToolRun> {
    const { user, cwd, stdin, signal } = options;
    const spawn = { argv, env: {}, cwd, user, stdin, graceMs: 0, windowBytes: 256 * 1024, tool: true };
    return new ToolRun(await channel.spawn(spawn, signal === undefined ? {} : { signal }));
  }

  addMessage(data: Buffer): void {
    if (this.#message.length < maxMessageBytes) this.#message += data.toString("utf8");
  }

  /** Reads the output of a tool that writes nothing on stdout. */
  readStderr(): void {
    this.#readingStderr = (async () => {
      for await (const { stream, data } of this.process) if (stream === "stderr") this.addMessage(data);
    })();
    this.#readingStderr.catch(() => undefined);
  }

  /** Returns false when the tool does not read any more: its end says why. */
  async feed(data: Uint8Array): Promise<boolean> {
    try {
      await this.process.writeStdin(data);
      return true;
    } catch (error) {
      if (isSandboxError(error, "invalid_state")) return false;
      throw error;
    }
  }

  /**
   * Yields the records of the tool up to its end. Throws unless the tool succeeds. A reader that stops early ends the
   * tool.
   */
  async *records(asked: string): AsyncGenerator<Buffer, void, void> {
    try {
      yield* readRecords(this.#stdout());
    } catch (error) {
      if (error instanceof RecordCutOff) await this.finish(asked);
      throw error instanceof MalformedPayload ? badAnswer(error) : error;
    } finally {
      await this.process.kill("SIGKILL");
    }
    await this.finish(asked);
  }

  async *#stdout(): AsyncGenerator<{ data: Buffer }, void, void> {
    for await (const event of this.process) {
      if (event.stream === "stdout") yield event;
      else this.addMessage(event.data);
    }
  }

  async finish(asked: string): Promise<void> {
    const exit = await this.process.wait();
    await this.#readingStderr;
    if (exit.exitCode === 0) return;
    const details = { message: this.#message.trim() };
    if (exit.exitCode !== null) throw fileError(exit.exitCode, asked, details);
    if (exit.signal === "SIGXFSZ") {
      throw new SandboxError("no_space", `Cannot ${asked}: the sandbox's disk quota is used up`, { details });
    }
    throw new SandboxError("file_error", `Cannot ${asked}: the operation was ended by ${exit.signal}`, { details });
  }
}

/** Returns the error for malformed output of a tool, which runs inside and is not trusted. */
export function badAnswer(cause: MalformedPayload): SandboxError {
  return new SandboxError("guest_violation", `Cannot use the guest's answer: ${cause.message}`, { cause });
}
