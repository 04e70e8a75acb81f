import { SandboxError, websocketProtocol } from "@atoll/protocol";
import { randomKey } from "../http/random-key.ts";
import type { ChannelLink } from "../socket/channel.ts";

const pieceBytes = 64 * 1024;

interface Waiter {
  /** The write resolves when input up to this offset is accepted. */
  offset: number;
  resolve: () => void;
  reject: (error: Error) => void;
}

/**
 * Sends the input of one command, in order and once. Input is kept until the server has accepted it, and sent again
 * from the accepted offset on each new connection; the server cuts off what it has. Offsets count the bytes of this
 * sender only: others may write to the same command.
 */
export class StdinSender {
  /** The name by which the server knows this sender, over all its connections. */
  readonly writer = randomKey();
  /** The input that is not accepted yet; it begins at `#base`. */
  #pieces: Uint8Array[] = [];
  #base = 0;
  #end = 0;
  /** How far input was sent over the current connection. */
  #sentTo = 0;
  /** The open channels of the command; input travels on one of them. */
  readonly #links = new Set<ChannelLink>();
  #link: ChannelLink | undefined;
  #waiters: Waiter[] = [];
  #endsAt: number | undefined;
  #isEndSent = false;
  #isEndAccepted = false;
  #failure: SandboxError | undefined;
  readonly #onChange: () => void;

  /** `onChange` is called after a message of the server may have changed `isPending`. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** Resolves when the server has accepted the input. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#assertOpen();
    for (let start = 0; start < bytes.length; start += pieceBytes) {
      this.#pieces.push(bytes.slice(start, start + pieceBytes));
    }
    this.#end += bytes.length;
    await this.#untilAccepted();
  }

  /** Ends the input; resolves when all of it has been accepted. */
  async close(): Promise<void> {
    if (this.#endsAt !== undefined) return;
    this.#assertOpen();
    this.#endsAt = this.#end;
    await this.#untilAccepted();
  }

  /** Whether input waits for a channel or for the server. */
  get isPending(): boolean {
    return (
      this.#failure === undefined && (this.#waiters.length > 0 || (this.#endsAt !== undefined && !this.#isEndAccepted))
    );
  }

  /**
   * A channel is open, and the server has input of this sender up to `acceptedOffset`; if the server does not report
   * the offset now, at least up to what it reported before.
   */
  attach(link: ChannelLink, acceptedOffset = this.#base): void {
    this.#links.add(link);
    if (this.#link !== undefined && this.#link !== link) return;
    if (acceptedOffset < this.#base) {
      this.fail(new SandboxError("internal", `Cannot go on: input from ${acceptedOffset} to ${this.#base} was lost`));
      return;
    }
    // Nothing is sent before the new link's position is set.
    this.#link = undefined;
    this.accepted(acceptedOffset);
    this.#use(link);
  }

  detach(link: ChannelLink): void {
    this.#links.delete(link);
    if (this.#link !== link) return;
    this.#link = undefined;
    const [other] = this.#links;
    if (other !== undefined) this.#use(other);
  }

  #use(link: ChannelLink): void {
    this.#link = link;
    this.#sentTo = this.#base;
    this.#isEndSent = false;
    this.#pump();
  }

  /** `isEnd`: whether the end of the input was accepted too. */
  accepted(offset: number, isEnd = false): void {
    if (offset > this.#end) {
      this.fail(
        new SandboxError("internal", `Cannot go on: the server has input up to ${offset}, and ${this.#end} were sent`),
      );
      return;
    }
    this.#forget(offset);
    this.#waiters = this.#waiters.filter((waiter) => {
      if (waiter.offset > offset) return true;
      waiter.resolve();
      return false;
    });
    if (isEnd) this.#isEndAccepted = true;
    this.#pump();
    // The link is not removed in the middle of its own call.
    queueMicrotask(this.#onChange);
  }

  /** The command has ended: input that it has not accepted is never accepted. */
  ended(): void {
    this.#links.clear();
    this.#link = undefined;
    this.fail(
      new SandboxError("invalid_state", "Cannot write to the command: it has ended", {
        suggestion: "Read its result",
      }),
    );
  }

  fail(error: SandboxError): void {
    this.#failure ??= error;
    this.#pieces = [];
    for (const waiter of this.#waiters.splice(0)) waiter.reject(this.#failure);
    queueMicrotask(this.#onChange);
  }

  #assertOpen(): void {
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#endsAt !== undefined) {
      throw new SandboxError("invalid_state", "Cannot write to the command: its stdin is closed");
    }
  }

  async #untilAccepted(): Promise<void> {
    const accepted = new Promise<void>((resolve, reject) => {
      this.#waiters.push({ offset: this.#end, resolve, reject });
    });
    if (this.#link !== undefined) this.accepted(this.#base);
    await accepted;
  }

  #forget(offset: number): void {
    let base = this.#base;
    while (base < offset) {
      const piece = this.#pieces[0];
      if (piece === undefined) break;
      if (base + piece.length <= offset) {
        this.#pieces.shift();
        base += piece.length;
      } else {
        this.#pieces[0] = piece.subarray(offset - base);
        base = offset;
      }
    }
    this.#base = Math.max(base, offset);
  }

  #pump(): void {
    const link = this.#link;
    if (link === undefined) return;
    let at = this.#base;
    for (const piece of this.#pieces) {
      const end = at + piece.length;
      if (end > this.#sentTo) {
        if (end - this.#base > websocketProtocol.windowBytes) return;
        const start = Math.max(at, this.#sentTo);
        link.sendFrame({ kind: "stdin", at: 0, offset: start, bytes: piece.subarray(start - at) });
        this.#sentTo = end;
      }
      at = end;
    }
    if (this.#endsAt !== undefined && !this.#isEndSent) {
      this.#isEndSent = true;
      link.send({ type: "stdin_end", offset: this.#endsAt });
    }
  }
}
