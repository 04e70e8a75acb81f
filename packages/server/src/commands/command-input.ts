import type { GuestProcess } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { storageError } from "../support/storage-error.ts";
import { Turns } from "../support/turns.ts";
import type { InputWriters } from "./input-writers.ts";

/** Small enough that an abandoned writer leaves little behind. */
const pieceBytes = 64 * 1024;

/** Whose the bytes are that nobody in particular wrote. */
const nobody = "";

export interface InputOptions {
  /** Offsets are then this writer's own, and count nobody else's bytes; without it they count everybody's. */
  writer?: string | undefined;
  offset?: number | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * The input of a command, by offsets: a writer says where its bytes belong, so that a retry after a broken connection,
 * from any client, writes nothing twice and leaves nothing out. Writers that have a name of their own can write at the
 * same time: what each gives comes once and in its order. A byte is accepted when it reaches the process even if this
 * server dies.
 */
export class CommandInput {
  #process: Pick<GuestProcess, "writeStdin" | "flushStdin" | "closeStdin" | "stdinBytes">;
  #writers: InputWriters;
  #turns = new Turns();
  /** A piece that was given to the process's window and has not left; the next writer waits for it. */
  #leaving: Promise<void> = Promise.resolve();
  #acceptedBytes: number;
  #onAccepted: () => void;

  constructor(
    process: Pick<GuestProcess, "writeStdin" | "flushStdin" | "closeStdin" | "stdinBytes">,
    writers: InputWriters,
    onAccepted: () => void = () => undefined,
  ) {
    this.#process = process;
    this.#writers = writers;
    this.#onAccepted = onAccepted;
    this.#acceptedBytes = process.stdinBytes;
  }

  get acceptedBytes(): number {
    return this.#acceptedBytes;
  }

  /** Where the input of this writer goes on, or everybody's. */
  nextOffset(writer: string | undefined): number {
    return writer === undefined ? this.#acceptedBytes : this.#writers.acceptedFrom(writer);
  }

  /**
   * Resolves with the offset where input goes on. Bytes that are there already are passed over; without `offset` they
   * come at the end.
   */
  write(data: Uint8Array, { writer, offset, signal }: InputOptions = {}): Promise<number> {
    return this.#turns.take(async () => {
      await this.#settle(signal);
      const rest = data.subarray(this.#overlap(writer, offset));
      for (let start = 0; start < rest.byteLength; start += pieceBytes) {
        signal?.throwIfAborted();
        await this.#writers.begin(writer ?? nobody, this.#acceptedBytes).catch((error: unknown) => {
          throw storageError(error, "take input");
        });
        this.#leaving = this.#send(rest.subarray(start, start + pieceBytes), writer ?? nobody);
        this.#leaving.catch(() => undefined);
        await abortable(this.#leaving, signal);
      }
      return this.nextOffset(writer);
    });
  }

  /** Idempotent. With `offset`, only when all input below it is there. It ends the input of all writers. */
  close({ writer, offset, signal }: InputOptions = {}): Promise<number> {
    return this.#turns.take(async () => {
      await this.#settle(signal);
      this.#overlap(writer, offset);
      await this.#process.closeStdin();
      await abortable(this.#process.flushStdin(), signal);
      return this.nextOffset(writer);
    });
  }

  async #settle(signal: AbortSignal | undefined): Promise<void> {
    await abortable(
      this.#leaving.catch(() => undefined),
      signal,
    );
  }

  async #send(piece: Uint8Array, writer: string): Promise<void> {
    await this.#process.writeStdin(piece);
    await this.#process.flushStdin();
    this.#acceptedBytes = this.#process.stdinBytes;
    this.#writers.accept(writer, piece.byteLength);
    this.#onAccepted();
  }

  #overlap(writer: string | undefined, offset: number | undefined): number {
    const wanted = this.nextOffset(writer);
    if (offset === undefined) return 0;
    if (offset <= wanted) return wanted - offset;
    throw new SandboxError(
      "invalid_argument",
      `Cannot take input at offset ${offset}: input goes on at ${wanted}, and a gap would be left`,
      {
        suggestion: `Send the bytes from offset ${wanted} on.`,
        details: writer === undefined ? { stdinBytes: wanted } : { writerBytes: wanted },
      },
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
