import type { ExitReport, GuestMessage } from "../../src/guest/messages.ts";

/** What a host received of one stream, checked against the order that the protocol guarantees. */
export class StreamLog {
  pid: number | undefined;
  failed: { errno: number; what: string } | undefined;
  exit: ExitReport | undefined;
  endAt: number | undefined;
  stdinAckedTo = 0;
  stdinClosedAt: number | undefined;
  asked: { host: string; port: number; protocol: string } | undefined;
  /** How often each kind of message came. */
  counts = new Map<string, number>();
  at = 0;
  #chunks: { output: 1 | 2; data: Buffer }[] = [];

  get stdout(): Buffer {
    return this.#joined(1);
  }

  get stderr(): Buffer {
    return this.#joined(2);
  }

  /** Both outputs in the order in which they came. */
  get output(): Buffer {
    return Buffer.concat(this.#chunks.map((chunk) => chunk.data));
  }

  /** Set to false for output that is too large to keep. */
  keepsOutput = true;

  /** Whether the process has exited and nothing more can come. */
  get isOver(): boolean {
    return this.failed !== undefined || (this.exit !== undefined && this.endAt !== undefined);
  }

  get outputBytes(): { 1: number; 2: number } {
    return this.#bytes;
  }
  #bytes = { 1: 0, 2: 0 };

  take(message: GuestMessage): void {
    this.counts.set(message.type, (this.counts.get(message.type) ?? 0) + 1);
    switch (message.type) {
      case "started":
        this.pid = message.pid;
        return;
      case "failed":
        this.failed = message;
        return;
      case "output":
        return this.#takeOutput(message);
      case "stdinAck":
        if (message.offset <= this.stdinAckedTo) throw new Error("Input is acknowledged twice");
        this.stdinAckedTo = message.offset;
        return;
      case "stdinClosed":
        this.stdinClosedAt = message.offset;
        return;
      case "exit":
        if (message.exit.at > this.at) throw new Error("The exit came before output that was there at the exit");
        this.exit = message.exit;
        return;
      case "end":
        if (message.at !== this.at) throw new Error(`The end is at ${message.at}, the output at ${this.at}`);
        this.endAt = message.at;
        return;
      case "connect":
        this.asked = message;
        return;
      case "welcome":
      case "done":
      case "counted":
      case "heldBy":
      case "nodes":
      case "ready":
      case "pong":
        throw new Error(`A stream got "${message.type}"`);
    }
  }

  /** Turns this into the log of a host that kept only the first `at` bytes. */
  forgetBeyond(at: number): void {
    const kept: { output: 1 | 2; data: Buffer }[] = [];
    this.#bytes = { 1: 0, 2: 0 };
    this.at = 0;
    for (const { output, data } of this.#chunks) {
      const piece = data.subarray(0, at - this.at);
      if (piece.byteLength === 0) break;
      kept.push({ output, data: piece });
      this.at += piece.byteLength;
      this.#bytes[output] += piece.byteLength;
    }
    this.#chunks = kept;
    this.exit = undefined;
    this.endAt = undefined;
  }

  #takeOutput({ output, at, offset, data }: GuestMessage & { type: "output" }): void {
    if (at !== this.at) throw new Error(`Output at ${at} where ${this.at} was next`);
    if (offset !== this.#bytes[output]) throw new Error(`Output ${output} at ${offset}, not ${this.#bytes[output]}`);
    if (this.endAt !== undefined) throw new Error("Output after the end");
    this.at += data.byteLength;
    this.#bytes[output] += data.byteLength;
    if (this.keepsOutput) this.#chunks.push({ output, data: Buffer.from(data) });
  }

  #joined(output: 1 | 2): Buffer {
    return Buffer.concat(this.#chunks.filter((chunk) => chunk.output === output).map((chunk) => chunk.data));
  }
}
