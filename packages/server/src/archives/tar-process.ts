import type { GuestProcess, Sandbox } from "@atoll/engine";
import { isSandboxError, SandboxError } from "@atoll/protocol";

/** The part of a sandbox that archives use. */
export type ArchiveSandbox = Pick<Sandbox, "files" | "spawn" | "record">;

export interface ArchiveOptions {
  /** The user on whose behalf tar runs: the sandbox's kernel checks this user's permissions. */
  user?: string;
  signal?: AbortSignal;
}

const maxMessageLength = 4096;

/** The messages of tar about actions that a user may not do. */
const errnoMessages = [
  { message: "Permission denied", errno: "EACCES" },
  { message: "Operation not permitted", errno: "EPERM" },
  { message: "Read-only file system", errno: "EROFS" },
] as const;

/**
 * The tar program of the sandbox, at work in a directory. It runs as the given user, so that the archive cannot touch
 * what that user may not touch.
 */
export class TarProcess {
  readonly process: GuestProcess;
  #messages = "";

  private constructor(process: GuestProcess) {
    this.process = process;
  }

  static async start(
    sandbox: ArchiveSandbox,
    args: string[],
    { user = "user", signal, stdin }: ArchiveOptions & { stdin: boolean },
  ): Promise<TarProcess> {
    // The messages of tar are read below, so the language of the template must not matter.
    const request = { argv: ["tar", ...args], env: { LC_ALL: "C" }, user, stdin };
    try {
      return new TarProcess(await sandbox.spawn(request, signal === undefined ? {} : { signal }));
    } catch (cause) {
      if (!isSandboxError(cause, "spawn_failed") || cause.details["errno"] !== "ENOENT") throw cause;
      throw new SandboxError("unsupported", "Cannot use archives here: the sandbox has no tar", {
        cause,
        suggestion: "Install tar inside or in the template, or transfer the files one by one.",
      });
    }
  }

  /** What tar wrote to stderr. */
  get messages(): string {
    return this.#messages.trim();
  }

  async *output(): AsyncGenerator<Buffer, void, void> {
    for await (const { stream, data } of this.process) {
      if (stream === "stdout") yield data;
      else if (this.#messages.length < maxMessageLength) this.#messages += data.toString("utf8");
    }
  }

  /** Ends tar, whatever it does at that moment. */
  async stop(): Promise<void> {
    // The end is reported after the output, which no caller reads any more.
    this.process.discardOutput();
    await this.process.kill("SIGKILL");
    await this.process.wait().catch(() => undefined);
  }

  /** Waits for the end of tar; the caller has read all output before. `asked` completes "Cannot …". */
  async finish(asked: string, details: Record<string, unknown> = {}): Promise<void> {
    const { exitCode, signal } = await this.process.wait();
    if (exitCode === 0 || (exitCode === 1 && this.#isAboutChanges())) return;
    const { messages } = this;
    const because = messages.split("\n")[0]?.replace(/^tar: /, "") ?? "";
    const how = signal === null ? because || `tar ended with ${exitCode}` : `tar was ended by ${signal}`;
    const isFull = signal === "SIGXFSZ" || /No space left|quota exceeded|File too large/.test(messages);
    const forbidden = errnoMessages.find(({ message }) => messages.includes(message));
    throw new SandboxError(
      isFull ? "no_space" : forbidden === undefined ? "file_error" : "permission_denied",
      `Cannot ${asked}: ${how}`,
      { details: { ...details, message: messages, ...(forbidden === undefined ? {} : { errno: forbidden.errno }) } },
    );
  }

  /**
   * Reports whether tar only complained about files that changed while it read them. Such files are in the archive as
   * tar found them; GNU's tar says so with exit code 1.
   */
  #isAboutChanges(): boolean {
    return this.messages.split("\n").every((line) => /changed as we read it|removed before we read it/.test(line));
  }
}
