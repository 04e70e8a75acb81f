import { toGuest, toHost, typeOffset } from "./frames.ts";
import { FifoTransport, type FifoPaths } from "./transport.ts";

interface HeldFrame {
  frame: Buffer;
  onTaken: (() => void) | undefined;
}

/** Where a frame says which stream or request it speaks of. */
const idOffset = 12;

/** What we send because of what the guest does. */
const replies: ReadonlySet<number> = new Set([toGuest.ACK, toGuest.VERDICT, toGuest.RELEASE]);

/**
 * A guest that goes on talking and leaves this much of our replies unread wants our memory. Windows bound everything
 * else that waits to be sent.
 */
const mostUnreadReplyBytes = 1024 * 1024;

/**
 * Told of what passes. `isRoutine`: a question of the host's own, or its answer, which says nothing about whether the
 * sandbox is in use.
 */
export interface TrafficListener {
  /** Before a frame leaves. */
  onSend(isRoutine: boolean): void;
  onReceive(isRoutine: boolean): void;
}

export interface GuestLineOptions {
  traffic: TrafficListener | undefined;
  onData: (chunk: Buffer) => void;
  /** The sandbox's last process is gone. */
  onEnd: (cause: Error | undefined) => void;
  /** The guest does not read what it is answered, or asks on where it should be silent. */
  onFlood: () => void;
}

/**
 * A channel's way to its guest: one pair of FIFOs after another, as the sandbox moves from container to container.
 * While it is being moved, frames wait here; they would be lost in FIFOs that nobody reads any more.
 */
export class GuestLine {
  #fifos: FifoTransport | undefined;
  #held: HeldFrame[] | undefined;
  #heldReplyBytes = 0;
  #unreadReplyBytes = 0;
  #options: GuestLineOptions;

  constructor(options: GuestLineOptions) {
    this.#options = options;
  }

  /** Throws `ENXIO` when nothing holds the other side: the sandbox is gone. */
  open(paths: FifoPaths): void {
    const fifos = new FifoTransport(paths);
    this.#fifos = fifos;
    const { traffic, onData } = this.#options;
    const receive = (chunk: Buffer): void => {
      // An answer mostly comes alone; where it does not, the other frame is seen with its next one.
      traffic?.onReceive(chunk.at(typeOffset) === toHost.COUNTED);
      onData(chunk);
    };
    fifos.listen(receive, (cause) => {
      // One that was left is of no interest any more.
      if (this.#fifos === fifos) this.#options.onEnd(cause);
    });
  }

  write(frame: Buffer, onTaken?: () => void): void {
    const type = frame.readUInt8(typeOffset);
    const isReply = replies.has(type);
    if (this.#held !== undefined && type !== toGuest.HELLO) {
      this.#held.push({ frame, onTaken });
      if (isReply) this.#heldReplyBytes += frame.byteLength;
    } else {
      this.#options.traffic?.onSend(type === toGuest.COUNT);
      if (isReply) this.#writeReply(frame);
      else this.#fifos?.write(frame, onTaken);
    }
    if (isReply && this.#heldReplyBytes + this.#unreadReplyBytes > mostUnreadReplyBytes) this.#options.onFlood();
  }

  /** From now on frames wait, but for a greeting. */
  hold(): void {
    this.#held ??= [];
  }

  /**
   * Sends what was held, in order. Input may come twice, before and after the greeting asked for it; the guest takes it
   * once.
   */
  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    this.#heldReplyBytes = 0;
    for (const { frame, onTaken } of held) this.write(frame, onTaken);
  }

  /** Whether the guest cannot know of this stream yet. */
  isStartHeld(id: number): boolean {
    return (this.#held ?? []).some(({ frame }) => {
      const type = frame.readUInt8(typeOffset);
      return (type === toGuest.SPAWN || type === toGuest.DIAL) && frame.readUInt32LE(idOffset) === id;
    });
  }

  /** Lets go of the FIFOs; nobody is told of an end. */
  leave(): void {
    const fifos = this.#fifos;
    this.#fifos = undefined;
    fifos?.close();
    this.#unreadReplyBytes = 0;
  }

  #writeReply(frame: Buffer): void {
    const fifos = this.#fifos;
    const { byteLength } = frame;
    this.#unreadReplyBytes += byteLength;
    fifos?.write(frame, () => {
      if (this.#fifos === fifos) this.#unreadReplyBytes -= byteLength;
    });
  }
}
