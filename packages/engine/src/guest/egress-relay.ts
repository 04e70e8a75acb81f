import type { Duplex } from "node:stream";
import { encodeFrame, protocolConstants, toGuest } from "./frames.ts";
import type { GuestConnection } from "./guest-connection.ts";
import type { GuestMessage } from "./messages.ts";
import { MalformedPayload, PayloadWriter } from "./wire.ts";

/** A connection that a process inside wants to the outside. */
export interface EgressRequest {
  host: string;
  port: number;
  protocol: "http-connect" | "http" | "socks5";
}

export type EgressAnswer =
  | { verdict: "allowed"; socket: Duplex }
  | { verdict: "refused" | "unknown_name" | "unreachable" | "timed_out"; reason: string };

export type EgressHandler = (ask: EgressRequest) => Promise<EgressAnswer>;

const verdicts = { allowed: 0, refused: 1, unknown_name: 2, unreachable: 3, timed_out: 4 } as const;

/**
 * Handles the guest's requests for the outside: the handler decides about each by name, and an allowed connection is
 * relayed. No more requests wait at one time than a guest can have streams; a handler that wants fewer refuses the
 * others.
 */
export class EgressRelay {
  #handler: EgressHandler | undefined;
  #send: (frame: Buffer) => void;
  #connect: (id: number) => GuestConnection;
  /** Connections without a verdict yet. */
  #asked = new Set<number>();
  /** Allowed connections that are not closed yet. */
  #relayed = new Set<number>();

  constructor(
    handler: EgressHandler | undefined,
    send: (frame: Buffer) => void,
    connect: (id: number) => GuestConnection,
  ) {
    this.#handler = handler;
    this.#send = send;
    this.#connect = connect;
  }

  take(message: GuestMessage & { type: "connect" }): void {
    const { id } = message;
    const isNew = id >= protocolConstants.GUEST_ID_BIT && !this.#asked.has(id) && !this.#relayed.has(id);
    if (!isNew) throw new MalformedPayload(`Connection requested with id ${id}`);
    if (this.#asked.size + this.#relayed.size >= protocolConstants.MAX_STREAMS) {
      throw new MalformedPayload("More connections requested than a guest can have");
    }
    const handler = this.#handler;
    if (handler === undefined) {
      this.#sendVerdict(id, "refused", "no connection to the outside is allowed");
    } else {
      this.#asked.add(id);
      void this.#answer(message, askOf(handler, message));
    }
  }

  /** Makes pending requests invalid, after a greeting and at the end: their answers are ignored. */
  abandonRequests(): void {
    this.#asked = new Set();
  }

  async #answer({ id }: GuestMessage & { type: "connect" }, asked: Promise<EgressAnswer>): Promise<void> {
    const round = this.#asked;
    const answer = await asked;
    round.delete(id);
    const isLate = round !== this.#asked;
    if (answer.verdict !== "allowed") {
      if (!isLate) this.#sendVerdict(id, answer.verdict, answer.reason);
    } else if (isLate || answer.socket.destroyed) {
      answer.socket.destroy();
      if (!isLate) this.#sendVerdict(id, "unreachable", "the connection was closed at once");
    } else {
      this.#relay(id, answer.socket);
    }
  }

  #relay(id: number, socket: Duplex): void {
    this.#relayed.add(id);
    const connection = this.#connect(id);
    connection.on("close", () => {
      this.#relayed.delete(id);
    });
    this.#sendVerdict(id, "allowed", "");
    joinStreams(connection, socket);
    joinStreams(socket, connection);
  }

  #sendVerdict(id: number, verdict: keyof typeof verdicts, reason: string): void {
    const payload = new PayloadWriter().u8(verdicts[verdict]).str(reason.slice(0, 512)).finish();
    this.#send(encodeFrame(toGuest.VERDICT, id, payload));
  }
}

async function askOf(handler: EgressHandler, { host, port, protocol }: EgressRequest): Promise<EgressAnswer> {
  try {
    return await handler({ host, port, protocol });
  } catch (error) {
    return { verdict: "unreachable", reason: error instanceof Error ? error.message : String(error) };
  }
}

/** `pipe` passes the end of a stream on, but not its failure: this ends the other side then, too. */
function joinStreams(from: Duplex, to: Duplex): void {
  from.on("error", () => {
    to.destroy();
  });
  from.on("close", () => {
    if (!from.readableEnded) to.destroy();
  });
  from.pipe(to);
  // When `to` is closed, the rest of `from` is read and thrown away, so that its end is noticed. This comes after
  // `pipe`, whose own listener pauses `from`.
  to.on("close", () => {
    from.resume();
  });
}
