import {
  CommandId,
  SandboxError,
  type CommandInfo,
  type RunCommand,
  type SandboxId,
  type SignalName,
} from "@atoll/protocol";
import { Bell } from "./bell.ts";
import { MockLog } from "./mock-log.ts";

/** What a scripted command can do. */
export interface MockProcess {
  /** The line for the shell, or the arguments joined with spaces. */
  line: string;
  argv: string[];
  cwd: string;
  env: Record<string, string>;
  user: string;
  stdout: (data: string | Uint8Array) => void;
  stderr: (data: string | Uint8Array) => void;
  stdin: AsyncIterable<Uint8Array>;
  /** Aborted when the command is killed or reaches its time limit. */
  signal: AbortSignal;
}

/** Resolves with the exit code, where undefined is 0. */
export type MockProgram = (process: MockProcess) => number | void | Promise<number | void>;

/** A command in memory: its log, its input by offsets, its end. */
export class MockCommand {
  readonly info: CommandInfo;
  readonly log: MockLog;
  /** Rings whenever there is more output, or the end. */
  readonly bell = new Bell();
  /** Rings when input is accepted. */
  readonly inputBell = new Bell();
  readonly #input: Uint8Array[] = [];
  readonly #writerBytes = new Map<string, number>();
  readonly #inputBell = new Bell();
  readonly #stop = new AbortController();
  #isInputClosed: boolean;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #onEnd: (info: CommandInfo) => void;

  constructor(
    sandboxId: SandboxId,
    request: RunCommand,
    program: MockProgram,
    env: Record<string, string>,
    onEnd: (info: CommandInfo) => void,
  ) {
    const argv = request.argv ?? ["/bin/bash", "-c", request.shell ?? ""];
    this.#onEnd = onEnd;
    this.log = new MockLog(request.logBytes);
    this.#isInputClosed = !request.stdin;
    this.info = {
      id: CommandId.parse(`cmd${randomName()}`),
      sandboxId,
      ...(request.name === undefined ? {} : { name: request.name }),
      argv,
      cwd: request.cwd === "" ? "/home/user" : request.cwd,
      user: request.user,
      hasPty: request.pty !== undefined,
      hasStdin: request.stdin,
      keepAlive: request.keepAlive,
      tags: request.tags,
      pid: 100,
      state: "running",
      exitCode: null,
      signal: null,
      timedOut: false,
      startedAtMs: Date.now(),
      stdoutBytes: 0,
      stderrBytes: 0,
      droppedBytes: 0,
      stdinBytes: 0,
    };
    if (request.timeoutMs !== undefined) {
      this.#timer = setTimeout(() => this.#end({ signal: "SIGTERM", timedOut: true }), request.timeoutMs);
    }
    void this.#run(program, {
      line: request.shell ?? argv.join(" "),
      argv,
      cwd: this.info.cwd,
      env: { ...env, ...request.env },
      user: request.user,
      stdout: (data) => this.#write("stdout", data),
      stderr: (data) => this.#write("stderr", data),
      stdin: this.#readInput(),
      signal: this.#stop.signal,
    });
  }

  kill(signal: SignalName): void {
    this.#end({ signal });
  }

  /** Returns the offset of this writer's next input, or without a writer that of all input. */
  nextOffset(writer: string | undefined): number {
    return writer === undefined ? this.info.stdinBytes : (this.#writerBytes.get(writer) ?? 0);
  }

  /** Ignores bytes that it has already. */
  writeStdin(bytes: Uint8Array, offset?: number, writer?: string): number {
    if (this.info.state !== "running")
      throw new SandboxError("invalid_state", "Cannot write to the command: it has ended");
    const wanted = this.nextOffset(writer);
    if (offset !== undefined && offset > wanted) {
      throw new SandboxError("invalid_argument", `Cannot accept input at offset ${offset}: it would leave a gap`);
    }
    const rest = bytes.slice(wanted - (offset ?? wanted));
    if (rest.length > 0 && this.#isInputClosed) {
      throw new SandboxError("invalid_state", "Cannot write to the command: its stdin is closed");
    }
    this.#input.push(rest);
    this.info.stdinBytes += rest.length;
    if (writer !== undefined) this.#writerBytes.set(writer, wanted + rest.length);
    this.#inputBell.ring();
    this.inputBell.ring();
    return this.nextOffset(writer);
  }

  closeStdin(writer?: string): number {
    this.#isInputClosed = true;
    this.#inputBell.ring();
    return this.nextOffset(writer);
  }

  async untilEnd(): Promise<CommandInfo> {
    const { rollbacks } = this.info;
    while (this.info.state === "running") {
      this.assertSince(rollbacks ?? 0);
      await this.bell.next();
    }
    return this.info;
  }

  /** Ends the command after a rollback; its followers get the error. */
  rollBack(rollbacks: number): void {
    this.info.rollbacks = rollbacks;
    this.bell.ring();
  }

  /** Forgets the command, which a rollback has undone: its end is not reported. */
  vanish(): void {
    this.#onEnd = () => undefined;
    this.#end({ signal: "SIGKILL" });
  }

  assertSince(rollbacks: number | undefined): void {
    if (rollbacks === undefined || rollbacks === (this.info.rollbacks ?? 0)) return;
    throw new SandboxError("rolled_back", `Cannot go on: sandbox ${this.info.sandboxId} was rolled back`);
  }

  async #run(program: MockProgram, process: MockProcess): Promise<void> {
    try {
      // The answer to its start comes before its output.
      await Promise.resolve();
      this.#end({ exitCode: (await program(process)) ?? 0 });
    } catch (error) {
      if (this.info.state !== "running") return;
      this.#write("stderr", `${error instanceof Error ? error.message : String(error)}\n`);
      this.#end({ exitCode: 1 });
    }
  }

  #write(stream: "stdout" | "stderr", data: string | Uint8Array): void {
    if (this.info.state !== "running") return;
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data.slice();
    const { stdoutBytes, stderrBytes } = this.info;
    const offset = stream === "stdout" ? stdoutBytes : stderrBytes;
    this.log.append(stream, offset, bytes);
    this.info.droppedBytes = this.log.droppedBytes;
    if (stream === "stdout") this.info.stdoutBytes += bytes.length;
    else this.info.stderrBytes += bytes.length;
    this.bell.ring();
  }

  #end(end: { exitCode?: number; signal?: SignalName; timedOut?: boolean }): void {
    if (this.info.state !== "running") return;
    clearTimeout(this.#timer);
    const { exitCode = null, signal = null, timedOut = false } = end;
    Object.assign(this.info, { state: "exited", exitCode, signal, timedOut, endedAtMs: Date.now() });
    this.#stop.abort(new Error("the command has ended"));
    this.#inputBell.ring();
    this.#onEnd(this.info);
    this.bell.ring();
  }

  async *#readInput(): AsyncGenerator<Uint8Array, void, undefined> {
    for (let next = 0; ; next += 1) {
      while (next >= this.#input.length) {
        if (this.#isInputClosed || this.info.state !== "running") return;
        await this.#inputBell.next();
      }
      const piece = this.#input[next];
      if (piece !== undefined) yield piece;
    }
  }
}

export function randomName(): string {
  const letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  return Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => letters[byte % letters.length]).join("");
}
