import { SandboxError, type CommandInfo } from "@atoll/protocol";
import type { OutputEvent } from "./output-event.ts";

/**
 * The position of a reader in a command's output. All output that a connection delivers goes through it, so that every
 * byte is taken exactly once: bytes before the position are cut off, and a gap that was not announced is an error.
 */
export class OutputCursor {
  #at: number;
  readonly #decoders = {
    stdout: new TextDecoder("utf-8", { ignoreBOM: true }),
    stderr: new TextDecoder("utf-8", { ignoreBOM: true }),
  };

  constructor(from: number) {
    this.#at = from;
  }

  /** How many bytes of the common order have been taken. */
  get at(): number {
    return this.#at;
  }

  /** Returns `undefined` if all of it has been taken before. */
  take(type: "stdout" | "stderr", at: number, offset: number, bytes: Uint8Array): OutputEvent | undefined {
    if (at > this.#at) {
      throw new SandboxError("internal", `Cannot follow the command: its output jumps from ${this.#at} to ${at}`);
    }
    const known = this.#at - at;
    if (known >= bytes.length) return undefined;
    const data = known === 0 ? bytes : bytes.subarray(known);
    const event: OutputEvent = {
      type,
      at: this.#at,
      offset: offset + known,
      data,
      text: this.#decoders[type].decode(data, { stream: true }),
    };
    this.#at += data.length;
    return event;
  }

  takeDropped(at: number, bytes: number): OutputEvent | undefined {
    const end = at + bytes;
    if (end <= this.#at) return undefined;
    const event: OutputEvent = { type: "dropped", at: this.#at, bytes: end - this.#at };
    this.#at = end;
    return event;
  }

  takeEnd(command: CommandInfo): OutputEvent {
    return { type: "ended", command };
  }

  /** Returns the bytes of a character that was never completed. */
  flush(type: "stdout" | "stderr"): string {
    return this.#decoders[type].decode();
  }
}
