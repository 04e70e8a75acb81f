import { SandboxError, websocketProtocol } from "@atoll/protocol";
import { randomKey } from "../http/random-key.ts";
import type { ChannelLink } from "../socket/channel.ts";

const pieceBytes = 64 * 1024;

interface Waiter {
  /** Resolved when input up to here is accepted. */
  offset: number;
  resolve: () => void;
  reject: (error: Error) => void;
}

/**
 * Input of one command, in order and once. It is kept until the server says that it has it for good, and sent again
 * from the accepted offset on each new connection; the server cuts off what it has. Offsets count the bytes of this
 * sender only: others may write to the same command.
 */
export class StdinSender {
  /** What the server knows this sender by, over all its connections. */
  readonly writer = randomKey();
  /** Not accepted yet: begins at `#base`. */
  #pieces: Uint8Array[] = [];
  #base = 0;
  #end = 0;
  /** How far the current connection has been sent. */
  #sentTo = 0;
  /** Channels of the command that stand; input travels on one of them. */
  readonly #links = new Set<ChannelLink>();
  #link: ChannelLink | undefined;
  #waiters: Waiter[] = [];
  #endsAt: number | undefined;
  #isEndSent = false;
  #isEndAccepted = false;
  #failure: SandboxError | undefined;
  readonly #onChange: () => void;

  /** `onChange` is called after `isPending` may have changed by what the server said. */
  constructor(onChange: () => void) {
    this.#onChange = onChange;
  }

  /** Resolves when the server has it for good. */
  async write(bytes: Uint8Array): Promise<void> {
    this.#assertOpen();
    for (let start = 0; start < bytes.length; start += pieceBytes) {
      this.#pieces.push(bytes.slice(start, start + pieceBytes));
    }
    this.#end += bytes.length;
    await this.#untilAccepted();
  }

  /** No more input; resolves when all of it has been accepted. */
  async close(): Promise<void> {
    if (this.#endsAt !== undefined) return;
    this.#assertOpen();
    this.#endsAt = this.#end;
    await this.#untilAccepted();
  }

  /** Something waits for a channel or for the server. */
  get isPending(): boolean {
    return (
      this.#failure === undefined && (this.#waiters.length > 0 || (this.#endsAt !== undefined && !this.#isEndAccepted))
    );
  }

  /**
   * A channel stands, and the server has input of this sender up to `acceptedOffset`: at least what it said, if it does
   * not say it now.
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

  /** `isEnd`: the end of the input too. */
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
    // The link is not left in the middle of what called here.
    queueMicrotask(this.#onChange);
  }

  /** The command is over: what it has not taken, nobody will. */
  ended(): void {
    this.#links.clear();
    this.#link = undefined;
    this.fail(
      new SandboxError("invalid_state", "Cannot write to the command: it has ended", {
        suggestion: "Look at its result",
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
