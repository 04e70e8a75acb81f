import { SandboxError } from "@atoll/protocol";
import { encodeFrame, protocolConstants, toGuest } from "./frames.ts";
import { PayloadWriter } from "./wire.ts";

/** How much of the input of a stream the guest has. */
export interface InputPosition {
  /** The guest has everything below this offset. */
  receivedOffset: number;
  /** The reader has taken everything below this offset; the bytes between the two fill the window. */
  handedOnOffset: number;
}

/**
 * The input side of one stream. Keeps what the guest has not acknowledged, so that it can be sent again after a
 * greeting, and makes writers wait while a whole window is in transit. Bytes that have not left this process count as
 * in transit, whatever the guest says: with a guest that acknowledges and does not read, all input would otherwise wait
 * in our memory.
 */
export class InputWindow {
  #id: number;
  #send: (frame: Buffer, onTaken: () => void) => void;
  /** Frames that were sent and not acknowledged, in order; the last byte is before `#sentOffset`. */
  #unacked: Buffer[] = [];
  #unackedBytes = 0;
  /**
   * At most a window below `#sentOffset`, and further below than the unacknowledged bytes if an earlier server has sent
   * some.
   */
  #ackedOffset: number;
  #sentOffset: number;
  /** Everything below this offset has left this process. */
  #takenOffset: number;
  #state: "open" | "ending" | "closed" = "open";
  #closedBecause = "its stdin is closed";
  #room: (() => void)[] = [];
  /** The number of frames that were sent, and of those that have left this process. */
  #sentFrames = 0;
  #takenFrames = 0;
  /** Writers take turns, so that the bytes of one call stay together. */
  #turn: Promise<void> = Promise.resolve();

  constructor(id: number, start: InputPosition, send: (frame: Buffer, onTaken: () => void) => void) {
    this.#id = id;
    this.#send = send;
    this.#ackedOffset = start.handedOnOffset;
    this.#sentOffset = start.receivedOffset;
    this.#takenOffset = start.receivedOffset;
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

  /** Ends the input after everything that was written before. Idempotent. */
  end(): Promise<void> {
    const turn = this.#turn.then(() => {
      if (this.#state !== "open") return;
      this.#state = "ending";
      this.#sendEnd();
    });
    this.#turn = turn;
    return turn;
  }

  /**
   * Resolves when everything that was written before has left this process: it reaches the guest then, also if this
   * process dies. Rejects with `invalid_state` if that cannot happen any more.
   */
  async flush(): Promise<void> {
    await this.#turn;
    const goal = this.#sentFrames;
    while (this.#takenFrames < goal) {
      this.#assertNotClosed();
      await this.#roomOrEnd();
    }
  }

  acknowledge(offset: number): void {
    this.#ackedOffset = Math.max(this.#ackedOffset, Math.min(offset, this.#sentOffset));
    const unackedFrom = this.#sentOffset - this.#unackedBytes;
    this.#drop(Math.max(0, this.#ackedOffset - unackedFrom));
    this.#notify();
  }

  /** Called when the reader inside has closed its end, or the stream has ended: nothing can be written any more. */
  close(because: string): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#closedBecause = because;
    this.#drop(this.#unackedBytes);
    this.#notify();
  }

  /** After a greeting, sends again what the guest has not received, because it may have been lost. */
  resend(position: InputPosition): void {
    if (this.#state === "closed") return;
    // The FIFO of the last container may have taken more than it reported.
    this.#takenOffset = Math.max(this.#takenOffset, Math.min(position.receivedOffset, this.#sentOffset));
    this.acknowledge(position.handedOnOffset);
    let offset = this.#sentOffset - this.#unackedBytes;
    for (const piece of this.#unacked) {
      const received = Math.max(0, position.receivedOffset - offset);
      if (received < piece.byteLength) this.#sendData(offset + received, piece.subarray(received));
      offset += piece.byteLength;
    }
    if (this.#state === "ending") this.#sendEnd();
  }

  async #sendPiece(piece: Buffer): Promise<void> {
    while (this.#state === "open" && this.#inTransit + piece.byteLength > protocolConstants.STDIN_WINDOW) {
      await this.#roomOrEnd();
    }
    this.#assertNotClosed();
    if (this.#state === "ending") throw this.#closedError("its stdin was closed");
    this.#unacked.push(piece);
    this.#unackedBytes += piece.byteLength;
    this.#sendData(this.#sentOffset, piece);
    this.#sentOffset += piece.byteLength;
  }

  get #inTransit(): number {
    return this.#sentOffset - Math.min(this.#ackedOffset, this.#takenOffset);
  }

  #drop(bytes: number): void {
    this.#unackedBytes -= bytes;
    let left = bytes;
    for (let first = this.#unacked[0]; first !== undefined && left > 0; first = this.#unacked[0]) {
      if (left < first.byteLength) this.#unacked[0] = first.subarray(left);
      else this.#unacked.shift();
      left -= Math.min(left, first.byteLength);
    }
  }

  #sendData(offset: number, piece: Buffer): void {
    const frame = encodeFrame(toGuest.STDIN, this.#id, new PayloadWriter().u64(offset).finish(), piece);
    this.#sendCounted(frame, offset + piece.byteLength);
  }

  #sendEnd(): void {
    const frame = encodeFrame(toGuest.STDIN_EOF, this.#id, new PayloadWriter().u64(this.#sentOffset).finish());
    this.#sendCounted(frame, this.#sentOffset);
  }

  #sendCounted(frame: Buffer, endOffset: number): void {
    this.#sentFrames += 1;
    this.#send(frame, () => {
      this.#takenFrames += 1;
      this.#takenOffset = Math.max(this.#takenOffset, endOffset);
      this.#notify();
    });
  }

  #assertNotClosed(): void {
    if (this.#state === "closed") throw this.#closedError(this.#closedBecause);
  }

  #closedError(because: string): SandboxError {
    return new SandboxError("invalid_state", `Cannot write to stream ${this.#id}: ${because}`, {
      details: { deliveredBytes: this.#ackedOffset },
    });
  }

  #roomOrEnd(): Promise<void> {
    return new Promise((resolve) => {
      this.#room.push(resolve);
    });
  }

  #notify(): void {
    const waiting = this.#room;
    this.#room = [];
    for (const wake of waiting) wake();
  }
}
