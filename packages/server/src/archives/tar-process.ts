import type { GuestProcess, Sandbox } from "@atoll/engine";
import { isSandboxError, SandboxError } from "@atoll/protocol";

/** What archives need of a sandbox. */
export type ArchiveSandbox = Pick<Sandbox, "files" | "spawn" | "record">;

export interface ArchiveOptions {
  /** On whose behalf: the sandbox's kernel checks that user's permissions. */
  user?: string;
  signal?: AbortSignal;
}

const mostWords = 4096;

/** What tar says of what a user may not do. */
const forbiddenErrnos = [
  { said: "Permission denied", errno: "EACCES" },
  { said: "Operation not permitted", errno: "EPERM" },
  { said: "Read-only file system", errno: "EROFS" },
] as const;

/**
 * The sandbox's own tar at work in a directory. It runs as the given user: what that user may not touch, the archive
 * cannot touch.
 */
export class TarProcess {
  readonly process: GuestProcess;
  #words = "";

  private constructor(process: GuestProcess) {
    this.process = process;
  }

  static async start(
    sandbox: ArchiveSandbox,
    args: string[],
    { user = "user", signal, stdin }: ArchiveOptions & { stdin: boolean },
  ): Promise<TarProcess> {
    // Messages are read below; the language of a template must not matter.
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

  /** What tar has complained about. */
  get words(): string {
    return this.#words.trim();
  }

  async *output(): AsyncGenerator<Buffer, void, void> {
    for await (const { stream, data } of this.process) {
      if (stream === "stdout") yield data;
      else if (this.#words.length < mostWords) this.#words += data.toString("utf8");
    }
  }

  /** Ends it, whatever it does. */
  async stop(): Promise<void> {
    // Its end comes after its output, which nobody reads any more.
    this.process.discardOutput();
    await this.process.kill("SIGKILL");
    await this.process.wait().catch(() => undefined);
  }

  /** After the last of its output. `asked` completes "Cannot …". */
  async finish(asked: string, details: Record<string, unknown> = {}): Promise<void> {
    const { exitCode, signal } = await this.process.wait();
    if (exitCode === 0 || (exitCode === 1 && this.#isAboutChanges())) return;
    const words = this.words;
    const because = words.split("\n")[0]?.replace(/^tar: /, "") ?? "";
    const how = signal === null ? because || `tar ended with ${exitCode}` : `tar was ended by ${signal}`;
    const isFull = signal === "SIGXFSZ" || /No space left|quota exceeded|File too large/.test(words);
    const forbidden = forbiddenErrnos.find(({ said }) => words.includes(said));
    throw new SandboxError(
      isFull ? "no_space" : forbidden === undefined ? "file_error" : "permission_denied",
      `Cannot ${asked}: ${how}`,
      { details: { ...details, message: words, ...(forbidden === undefined ? {} : { errno: forbidden.errno }) } },
    );
  }

  /** Files that others write to meanwhile are in the archive as they were found; GNU's tar says so with exit code 1. */
  #isAboutChanges(): boolean {
    return this.words.split("\n").every((line) => /changed as we read it|removed before we read it/.test(line));
  }
}
