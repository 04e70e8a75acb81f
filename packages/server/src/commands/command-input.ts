import type { GuestProcess } from "@atoll/engine";
import { SandboxError } from "@atoll/protocol";
import { storageError } from "../support/storage-error.ts";
import { Turns } from "../support/turns.ts";
import type { InputWriters } from "./input-writers.ts";

/** The size is small, so that an abandoned writer leaves little behind. */
const pieceBytes = 64 * 1024;

/** The writer of bytes that were sent without a writer's name. */
const unnamedWriter = "";

export interface InputOptions {
  /** With a writer, offsets count only this writer's bytes; without one they count the bytes of all writers. */
  writer?: string | undefined;
  offset?: number | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * The input of a command, by offsets. A writer says where its bytes belong, so that a retry after a broken connection,
 * from any client, writes nothing twice and leaves nothing out. Writers with names of their own can write at the same
 * time: the bytes of each arrive once and in their order. A byte is accepted when it will reach the process even if
 * this server crashes.
 */
export class CommandInput {
  #process: Pick<GuestProcess, "writeStdin" | "flushStdin" | "closeStdin" | "stdinBytes">;
  #writers: InputWriters;
  #turns = new Turns();
  /** Sends a piece that is in the process's window but not acknowledged; the next writer waits for it. */
  #sending: Promise<void> = Promise.resolve();
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

  /** Returns the offset where the input of this writer continues, or that of all writers together. */
  nextOffset(writer: string | undefined): number {
    return writer === undefined ? this.#acceptedBytes : this.#writers.acceptedFrom(writer);
  }

  /**
   * Resolves with the offset where input continues. Bytes below that offset are skipped; without `offset` the bytes are
   * appended.
   */
  write(data: Uint8Array, { writer, offset, signal }: InputOptions = {}): Promise<number> {
    return this.#turns.take(async () => {
      await this.#settle(signal);
      const rest = data.subarray(this.#overlap(writer, offset));
      for (let start = 0; start < rest.byteLength; start += pieceBytes) {
        signal?.throwIfAborted();
        await this.#writers.begin(writer ?? unnamedWriter, this.#acceptedBytes).catch((error: unknown) => {
          throw storageError(error, "take input");
        });
        this.#sending = this.#send(rest.subarray(start, start + pieceBytes), writer ?? unnamedWriter);
        this.#sending.catch(() => undefined);
        await abortable(this.#sending, signal);
      }
      return this.nextOffset(writer);
    });
  }

  /**
   * Closes the input of all writers; repeated calls are allowed. With `offset`, it fails unless all input below it was
   * accepted.
   */
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
      this.#sending.catch(() => undefined),
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
      `Cannot take input at offset ${offset}: input continues at ${wanted}, so that bytes would be missing`,
      {
        suggestion: `Send the bytes from offset ${wanted} onwards.`,
        details: writer === undefined ? { stdinBytes: wanted } : { writerBytes: wanted },
      },
    );
  }
}

/** Rejects when the signal aborts. The work itself goes on. */
async function abortable<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  // A caller that stops waiting does not see a later failure, and no other caller handles it.
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
