import type { GuestProcess } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { Turns } from "../support/turns.ts";

/** Small enough that an abandoned writer leaves little behind. */
const pieceBytes = 64 * 1024;

/**
 * The input of a command, by offsets: a writer says where its bytes belong, so that a retry after a broken connection, from any client, writes
 * nothing twice and leaves nothing out. A byte is accepted when it reaches the process even if this server dies.
 */
export class CommandInput {
  #process: GuestProcess;
  #turns = new Turns();
  /** A piece that was given to the process's window and has not left; the next writer waits for it. */
  #leaving: Promise<void> = Promise.resolve();
  #acceptedBytes: number;
  #onAccepted: () => void;

  constructor(process: GuestProcess, onAccepted: () => void = () => undefined) {
    this.#process = process;
    this.#onAccepted = onAccepted;
    this.#acceptedBytes = process.stdinBytes;
  }

  get acceptedBytes(): number {
    return this.#acceptedBytes;
  }

  /** Resolves with the offset where input goes on. Bytes that are there already are passed over; without `offset` they come at the end. */
  write(data: Uint8Array, { offset, signal }: { offset?: number; signal?: AbortSignal } = {}): Promise<number> {
    return this.#turns.take(async () => {
      await this.#settle(signal);
      const rest = data.subarray(this.#overlap(offset));
      for (let start = 0; start < rest.byteLength; start += pieceBytes) {
        signal?.throwIfAborted();
        this.#leaving = this.#send(rest.subarray(start, start + pieceBytes));
        this.#leaving.catch(() => undefined);
        await abortable(this.#leaving, signal);
      }
      return this.#acceptedBytes;
    });
  }

  /** Idempotent. With `offset`, only when all input below it is there. */
  close({ offset, signal }: { offset?: number; signal?: AbortSignal } = {}): Promise<number> {
    return this.#turns.take(async () => {
      await this.#settle(signal);
      this.#overlap(offset);
      await this.#process.closeStdin();
      await abortable(this.#process.flushStdin(), signal);
      return this.#acceptedBytes;
    });
  }

  async #settle(signal: AbortSignal | undefined): Promise<void> {
    await abortable(
      this.#leaving.catch(() => undefined),
      signal,
    );
  }

  async #send(piece: Uint8Array): Promise<void> {
    await this.#process.writeStdin(piece);
    await this.#process.flushStdin();
    this.#acceptedBytes = this.#process.stdinBytes;
    this.#onAccepted();
  }

  #overlap(offset = this.#acceptedBytes): number {
    const wanted = this.#acceptedBytes;
    if (offset <= wanted) return wanted - offset;
    throw new SandboxError(
      "invalid_argument",
      `Cannot take input at offset ${offset}: input goes on at ${wanted}, and a gap would be left`,
      { suggestion: `Send the bytes from offset ${wanted} on.`, details: { stdinBytes: wanted } },
    );
  }
}

/** Stops waiting, not the work. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  // Whoever stops waiting does not hear of its failure; nobody else waits for it.
  work.catch(() => undefined);
  signal.throwIfAborted();
  let abort: () => void = () => undefined;
  try {
    return await Promise.race([
      work,
      new Promise<never>((_, reject) => {
        abort = () => {
          reject(signal.reason as Error);
        };
        signal.addEventListener("abort", abort, { once: true });
      }),
    ]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
