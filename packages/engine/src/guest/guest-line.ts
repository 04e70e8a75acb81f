import { toGuest, toHost, typeOffset } from "./frames.ts";
import { FifoTransport, type FifoPaths } from "./transport.ts";

interface QueuedFrame {
  frame: Buffer;
  onTaken: (() => void) | undefined;
}

/** The position of the id of the stream or request in a frame. */
const idOffset = 12;

/** Frames that the host sends in reply to the guest. */
const replies: ReadonlySet<number> = new Set([toGuest.ACK, toGuest.VERDICT, toGuest.RELEASE]);

/**
 * A guest that sends requests and leaves this much of our replies unread would fill our memory. Windows bound
 * everything else that waits to be sent.
 */
const mostUnreadReplyBytes = 1024 * 1024;

/**
 * Learns of the frames that pass. `isRoutine` marks a routine question of the host, or its answer, which says nothing
 * about whether the sandbox is in use.
 */
export interface TrafficListener {
  /** Called before a frame is sent. */
  onSend(isRoutine: boolean): void;
  onReceive(isRoutine: boolean): void;
}

export interface GuestLineOptions {
  traffic: TrafficListener | undefined;
  onData: (chunk: Buffer) => void;
  /** Called when the sandbox's last process is gone. */
  onEnd: (cause: Error | undefined) => void;
  /** Called when the guest does not read its replies, or sends requests when it should be silent. */
  onFlood: () => void;
}

/**
 * A channel's connection to its guest: one pair of FIFOs after another, as the sandbox moves from container to
 * container. During the move, frames are queued here; they would be lost in FIFOs that no process reads any more.
 */
export class GuestLine {
  #fifos: FifoTransport | undefined;
  #queued: QueuedFrame[] | undefined;
  #heldReplyBytes = 0;
  #unreadReplyBytes = 0;
  #options: GuestLineOptions;

  constructor(options: GuestLineOptions) {
    this.#options = options;
  }

  /** Throws `ENXIO` when no process has the other side open: the sandbox is gone. */
  open(paths: FifoPaths): void {
    const fifos = new FifoTransport(paths);
    this.#fifos = fifos;
    const { traffic, onData } = this.#options;
    const receive = (chunk: Buffer): void => {
      // An answer usually comes alone; if it does not, the other frame is seen with the next one.
      traffic?.onReceive(chunk.at(typeOffset) === toHost.COUNTED);
      onData(chunk);
    };
    fifos.listen(receive, (cause) => {
      // The end of FIFOs that were left does not matter any more.
      if (this.#fifos === fifos) this.#options.onEnd(cause);
    });
  }

  write(frame: Buffer, onTaken?: () => void): void {
    const type = frame.readUInt8(typeOffset);
    const isReply = replies.has(type);
    if (this.#queued !== undefined && type !== toGuest.HELLO) {
      this.#queued.push({ frame, onTaken });
      if (isReply) this.#heldReplyBytes += frame.byteLength;
    } else {
      this.#options.traffic?.onSend(type === toGuest.COUNT);
      if (isReply) this.#writeReply(frame);
      else this.#fifos?.write(frame, onTaken);
    }
    if (isReply && this.#heldReplyBytes + this.#unreadReplyBytes > mostUnreadReplyBytes) this.#options.onFlood();
  }

  /** Queues all frames from now on, except a greeting. */
  pause(): void {
    this.#queued ??= [];
  }

  /**
   * Sends the queued frames, in order. Input may come twice, before and after the greeting that requests it; the guest
   * takes it once.
   */
  flush(): void {
    const queued = this.#queued ?? [];
    this.#queued = undefined;
    this.#heldReplyBytes = 0;
    for (const { frame, onTaken } of queued) this.write(frame, onTaken);
  }

  /** Says whether the guest cannot know of this stream yet, because the frame that starts it is queued. */
  isStartQueued(id: number): boolean {
    return (this.#queued ?? []).some(({ frame }) => {
      const type = frame.readUInt8(typeOffset);
      return (type === toGuest.SPAWN || type === toGuest.DIAL) && frame.readUInt32LE(idOffset) === id;
    });
  }

  /** Closes the FIFOs; `onEnd` is not called. */
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
