import { once } from "node:events";
import { open } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { hasErrno } from "@atoll/host";
import { deadlineAfter, SandboxError, type ContainerId } from "@atoll/protocol";
import { z } from "zod";

/**
 * A sandbox with thousands of threads gives a long answer; a longer one than this does not come from a runsc that we
 * know.
 */
const mostAnswerBytes = 64 * 1024 * 1024;
const answerTimeoutMs = 30_000;

const Answer = z.object({ success: z.boolean(), err: z.string(), result: z.unknown() });
type Answer = z.infer<typeof Answer>;

/**
 * The socket on which runsc's own commands talk to a sandbox. To start one of these commands takes longer than its
 * work; over the socket, the sandbox freezes in a millisecond. The sandbox counts how often it was frozen and dies if
 * it is woken once too often, so its state is read first.
 */
export class RunscControl {
  #stateDir: string;
  #id: ContainerId;

  constructor(stateDir: string, id: ContainerId) {
    this.#stateDir = stateDir;
    this.#id = id;
  }

  /** A program that connects to this socket talks to the sandbox. */
  get socketPath(): string {
    return `${this.#stateDir}/${this.#socketName}`;
  }

  get #socketName(): string {
    return `runsc-${this.#id}.sock`;
  }

  /** Returns false if the sandbox cannot be frozen this way; then nothing has changed. */
  async freeze(): Promise<boolean> {
    if ((await this.#call("containerManager.Pause"))?.success !== true) return false;
    // After the answer every thread is in its stop, though a goroutine may still be on its way to wait there.
    const state = await this.#stopState();
    if (state === "stopped" || state === "between") return true;
    await this.#wake();
    return false;
  }

  /** Does nothing to a container that is not frozen. */
  async thaw(): Promise<void> {
    const signal = deadlineAfter(answerTimeoutMs);
    for (;;) {
      const state = await this.#stopState();
      if (state === "stopped") await this.#wake();
      else if (state !== "between") return;
      else if (signal.aborted)
        throw new SandboxError("internal", `Cannot wake container ${this.#id}: it stays stopped`);
    }
  }

  async #wake(): Promise<void> {
    const answer = await this.#call("containerManager.Resume");
    if (answer?.success === true) return;
    throw new SandboxError("internal", `Cannot wake container ${this.#id}: ${answer?.err ?? "it does not listen"}`);
  }

  /** Returns undefined if the container does not answer. */
  async #stopState(): Promise<ReturnType<typeof stopState>> {
    const answer = await this.#call("debug.Stacks");
    return answer?.success === true && typeof answer.result === "string" ? stopState(answer.result) : undefined;
  }

  /** Returns undefined if no sandbox listens on the socket. */
  async #call(method: string): Promise<Answer | undefined> {
    // The path of the socket may be longer than the kernel takes; that of its directory is shortened.
    const directory = await open(this.#stateDir, "r");
    try {
      const socket = connect(`/proc/self/fd/${directory.fd}/${this.#socketName}`);
      try {
        return await this.#exchange(socket, method);
      } finally {
        socket.destroy();
      }
    } finally {
      await directory.close();
    }
  }

  async #exchange(socket: Socket, method: string): Promise<Answer | undefined> {
    const signal = deadlineAfter(answerTimeoutMs);
    try {
      await once(socket, "connect", { signal });
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ECONNREFUSED")) return undefined;
      throw this.#unanswered(method, error);
    }
    socket.end(JSON.stringify({ method, arg: null }));
    const chunks: Buffer[] = [];
    let bytes = 0;
    const abort = (): void => void socket.destroy(new Error("no answer in time"));
    signal.addEventListener("abort", abort, { once: true });
    try {
      for await (const chunk of socket) {
        chunks.push(chunk as Buffer);
        bytes += (chunk as Buffer).byteLength;
        if (bytes > mostAnswerBytes) throw new Error(`its answer is longer than ${mostAnswerBytes} bytes`);
        // This byte ends an answer, and may end a piece of one.
        if ((chunk as Buffer).at(-1) !== closingBrace) continue;
        const answer = parseAnswer(Buffer.concat(chunks).toString("utf8"));
        if (answer !== undefined) return answer;
      }
      throw new Error("it closed the connection");
    } catch (cause) {
      throw this.#unanswered(method, cause);
    } finally {
      signal.removeEventListener("abort", abort);
    }
  }

  #unanswered(method: string, cause: unknown): SandboxError {
    return new SandboxError("internal", `Cannot talk to container ${this.#id}: ${method} was not answered`, { cause });
  }
}

/** runsc gives the file with the memory this name, and looks for it when it restores. */
export const imageName = "checkpoint.img";

/**
 * Returns the request that `runsc checkpoint` sends to a sandbox together with the file to write to. Another version
 * may use another request, and a request that it does not understand can end the sandbox, so the result is undefined
 * for unknown versions.
 */
export function saveRequest(runscVersion: string): string | undefined {
  if (!/(?:^|[~-])20240729\b/.test(runscVersion)) return undefined;
  return JSON.stringify({
    method: "containerManager.Checkpoint",
    arg: {
      key: null,
      metadata: { compression: "flate-best-speed" },
      MemoryFileSaveOpts: { ExcludeCommittedZeroPages: false },
      have_pages_file: false,
      Resume: false,
    },
  });
}

const closingBrace = "}".codePointAt(0);

/** Returns undefined if the answer is not complete. */
function parseAnswer(text: string): Answer | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return Answer.parse(value);
}

/**
 * Returns what the stacks of runsc's goroutines say about the threads inside; undefined if there are no threads. In
 * `between` every thread is in a stop, but at least one goroutine does not wait for its end: it is about to wait, or it
 * was woken and has not run yet. On a busy machine that lasts long, and waking such a sandbox a second time crashes it.
 * All threads are looked at, because a single one may be stopped for reasons of its own: it received SIGSTOP, or it
 * waits for a child that borrowed its memory.
 */
export function stopState(stacks: string): "running" | "between" | "stopped" | undefined {
  const tasks = stacks.split("\n\n").filter((stack) => stack.includes("kernel.(*Task).run("));
  if (tasks.length === 0) return undefined;
  if (!tasks.every((stack) => stack.includes("kernel.(*Task).doStop("))) return "running";
  return tasks.every((stack) => waitsForSignal.test(stack)) ? "stopped" : "between";
}

/** The header of a stack names what its goroutine waits for, and after a minute for how long. */
const waitsForSignal = /^goroutine \d+ (?:\w+=\S+ )*\[sync\.Cond\.Wait[\],]/m;
