import type { OutputEvent, Process } from "@atoll/host";
import type { ProcessExit, SignalName } from "@atoll/protocol";
import { encodeFrame, toGuest } from "./frames.ts";
import type { GuestStream } from "./guest-stream.ts";
import { PayloadWriter } from "./wire.ts";

export interface GuestProcessOptions {
  pid: number;
  send: (frame: Buffer) => void;
  /**
   * The guest keeps the record of the end until `release` is called, for a server that stores it first; otherwise the
   * record is dropped at the end.
   */
  keep: boolean;
  signal?: AbortSignal | undefined;
  /**
   * Resolves to whether the sandbox ran out of memory since the process was started; called when the process did not
   * end well.
   */
  ranOutOfMemory: () => Promise<boolean>;
}

/** A process in a sandbox. */
export class GuestProcess implements Process {
  readonly pid: number;
  #stream: GuestStream;
  #options: GuestProcessOptions;
  #wasAborted = false;

  constructor(stream: GuestStream, options: GuestProcessOptions) {
    this.pid = options.pid;
    this.#stream = stream;
    this.#options = options;
    const abort = (): void => {
      this.#wasAborted = true;
      void this.kill("SIGKILL");
    };
    options.signal?.addEventListener("abort", abort, { once: true });
    if (options.signal?.aborted === true) abort();
    stream.ended.then(
      () => {
        options.signal?.removeEventListener("abort", abort);
        stream.output.finish();
        if (!options.keep) stream.release();
      },
      () => {
        options.signal?.removeEventListener("abort", abort);
      },
    );
  }

  /** The id by which a later server finds this process. */
  get streamId(): number {
    return this.#stream.id;
  }

  async writeStdin(data: Uint8Array | string): Promise<void> {
    await this.#stream.input.write(typeof data === "string" ? Buffer.from(data) : data);
  }

  /** The number of input bytes that were written so far, by this server and earlier ones. */
  get stdinBytes(): number {
    return this.#stream.input.sentOffset;
  }

  /**
   * Resolves when all that was written will reach the guest even if this server dies; rejects with `invalid_state` if
   * that cannot happen any more.
   */
  async flushStdin(): Promise<void> {
    await this.#stream.input.flush();
  }

  async closeStdin(): Promise<void> {
    await this.#stream.input.end();
  }

  async kill(signal: SignalName = "SIGTERM"): Promise<void> {
    this.#stream.signal(signal);
  }

  /** Changes the size of the process's terminal; does nothing for other processes. */
  async resize(size: { rows: number; cols: number }): Promise<void> {
    if (this.#stream.exit !== undefined) return;
    const payload = new PayloadWriter().u16(size.rows).u16(size.cols).finish();
    this.#options.send(encodeFrame(toGuest.RESIZE, this.#stream.id, payload));
  }

  /** Rejects with the reason of the signal if that ended the process. */
  async wait(): Promise<ProcessExit> {
    const { at: _, ...exit } = await this.#stream.ended;
    if (this.#wasAborted) throw this.#options.signal?.reason;
    return { ...exit, outOfMemory: exit.exitCode !== 0 && (await this.#options.ranOutOfMemory()) };
  }

  discardOutput(): void {
    this.#stream.output.discard();
  }

  /**
   * Another way to read the output, for a caller that passes it on at once: each piece is valid until `take` has
   * settled, and counts as taken then. Iteration gives pieces that belong to the reader, and leaves as much memory to
   * the garbage collector as there was output. If `take` fails, so does this, and the guest keeps what was not taken.
   */
  async consume(take: (event: OutputEvent) => void | Promise<void>): Promise<void> {
    await this.#stream.output.consume(take);
  }

  /** Lets the guest forget the process. One that still runs continues without a reader. */
  release(): void {
    this.#stream.release();
  }

  [Symbol.asyncIterator](): AsyncIterator<OutputEvent, undefined> {
    return this.#stream.output[Symbol.asyncIterator]();
  }
}
