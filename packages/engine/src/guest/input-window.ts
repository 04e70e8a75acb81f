import { SandboxError } from "@atoll/protocol";
import { encodeFrame, protocolConstants, toGuest } from "./frames.ts";
import { PayloadWriter } from "./wire.ts";

/**
 * The input side of one stream. Keeps what the guest has not acknowledged, so that it can be sent again after a greeting, and makes
 * writers wait while a whole window is on its way.
 */
export class InputWindow {
  #id: number;
  #send: (frame: Buffer) => void;
  /** Sent and not acknowledged, in order; the first byte stands at `#ackedOffset`. */
  #unacked: Buffer[] = [];
  #ackedOffset: number;
  #sentOffset: number;
  #state: "open" | "ending" | "closed" = "open";
  #closedBecause = "its stdin is closed";
  #room: (() => void)[] = [];
  /** Writers take turns: the bytes of one call stay together. */
  #turn: Promise<void> = Promise.resolve();

  constructor(id: number, startOffset: number, send: (frame: Buffer) => void) {
    this.#id = id;
    this.#send = send;
    this.#ackedOffset = startOffset;
    this.#sentOffset = startOffset;
  }

  get sentOffset(): number {
    return this.#sentOffset;
  }

  write(data: Uint8Array): Promise<void> {
    const turn = this.#turn.then(async () => {
      for (let position = 0; position < data.byteLength; position += protocolConstants.MAX_DATA) {
        const end = Math.min(position + protocolConstants.MAX_DATA, data.byteLength);
        await this.#sendPiece(Buffer.from(data.subarray(position, end)));
      }
    });
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  /** Idempotent; comes after everything that was written before. */
  end(): Promise<void> {
    const turn = this.#turn.then(() => {
      if (this.#state !== "open") return;
      this.#state = "ending";
      this.#sendEnd();
    });
    this.#turn = turn;
    return turn;
  }

  acknowledge(offset: number): void {
    while (this.#unacked.length > 0 && this.#ackedOffset < offset) {
      const first = this.#unacked[0];
      if (first === undefined) break;
      const gone = Math.min(first.byteLength, offset - this.#ackedOffset);
      this.#ackedOffset += gone;
      if (gone === first.byteLength) this.#unacked.shift();
      else this.#unacked[0] = first.subarray(gone);
    }
    this.#notify();
  }

  /** The reader inside has closed its end, or the stream is over: nothing can be written any more. */
  close(because: string): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#closedBecause = because;
    this.#unacked = [];
    this.#notify();
  }

  /** After a greeting: the guest has everything below `receivedOffset`, the rest may have been lost on the way. */
  resend(receivedOffset: number): void {
    if (this.#state === "closed") return;
    this.acknowledge(receivedOffset);
    let offset = this.#ackedOffset;
    for (const piece of this.#unacked) {
      this.#sendData(offset, piece);
      offset += piece.byteLength;
    }
    if (this.#state === "ending") this.#sendEnd();
  }

  async #sendPiece(piece: Buffer): Promise<void> {
    while (
      this.#state === "open" &&
      this.#sentOffset - this.#ackedOffset + piece.byteLength > protocolConstants.STDIN_WINDOW
    ) {
      await new Promise<void>((resolve) => {
        this.#room.push(resolve);
      });
    }
    if (this.#state !== "open") {
      const because = this.#state === "ending" ? "its stdin was closed" : this.#closedBecause;
      throw new SandboxError("invalid_state", `Cannot write to stream ${this.#id}: ${because}`, {
        details: { deliveredBytes: this.#ackedOffset },
      });
    }
    this.#unacked.push(piece);
    this.#sendData(this.#sentOffset, piece);
    this.#sentOffset += piece.byteLength;
  }

  #sendData(offset: number, piece: Buffer): void {
    this.#send(encodeFrame(toGuest.STDIN, this.#id, new PayloadWriter().u64(offset).finish(), piece));
  }

  #sendEnd(): void {
    this.#send(encodeFrame(toGuest.STDIN_EOF, this.#id, new PayloadWriter().u64(this.#sentOffset).finish()));
  }

  #notify(): void {
    const waiting = this.#room;
    this.#room = [];
    for (const wake of waiting) wake();
  }
}
