import { Duplex } from "node:stream";
import type { OutputEvent } from "@atoll/host";
import type { GuestStream } from "./guest-stream.ts";

/** The bytes that a sandbox sent to and received from the outside of it, over all of its connections. */
export interface NetworkCount {
  sentBytes: number;
  receivedBytes: number;
}

/** A TCP connection inside the sandbox, as a stream on the host. Destroying it closes the connection inside. */
export class GuestConnection extends Duplex {
  #stream: GuestStream;
  #events: AsyncIterator<OutputEvent, undefined>;
  #count: NetworkCount;

  constructor(stream: GuestStream, count: NetworkCount) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#count = count;
    this.#events = stream.output[Symbol.asyncIterator]();
  }

  override _read(): void {
    this.#events.next().then(
      (result) => {
        if (result.done !== true) this.#count.sentBytes += result.value.data.byteLength;
        this.push(result.done === true ? null : result.value.data);
      },
      (error: unknown) => {
        this.destroy(error instanceof Error ? error : new Error(String(error)));
      },
    );
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: (error?: Error | null) => void): void {
    this.#stream.input.write(chunk).then(() => {
      this.#count.receivedBytes += chunk.byteLength;
      callback();
    }, callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#stream.input.end().then(() => {
      callback();
    }, callback);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#stream.release();
    callback(error);
  }
}
