import type { Duplex } from "node:stream";
import { encodeFrame, protocolConstants, toGuest } from "./frames.ts";
import { GuestConnection } from "./guest-connection.ts";
import type { GuestStream } from "./guest-stream.ts";
import type { GuestMessage } from "./messages.ts";
import { MalformedPayload, PayloadWriter } from "./wire.ts";

/** A connection that something inside wants to the outside. */
export interface EgressAsk {
  host: string;
  port: number;
  protocol: "http-connect" | "http" | "socks5";
}

export type EgressAnswer =
  | { verdict: "allowed"; socket: Duplex }
  | { verdict: "refused" | "unknown_name" | "unreachable" | "timed_out"; reason: string };

export type EgressHandler = (ask: EgressAsk) => Promise<EgressAnswer>;

const verdicts = { allowed: 0, refused: 1, unknown_name: 2, unreachable: 3, timed_out: 4 } as const;

/** More connections than this waiting for an answer at once are refused unasked. */
const maxPendingAsks = 128;

/** Answers the guest's wishes for the outside: each is asked of the handler by name; an allowed one is relayed. */
export class EgressRelay {
  #handler: EgressHandler | undefined;
  #send: (frame: Buffer) => void;
  #addStream: (id: number) => GuestStream;
  #pendingAsks = 0;
  #isOver = false;

  constructor(
    handler: EgressHandler | undefined,
    send: (frame: Buffer) => void,
    addStream: (id: number) => GuestStream,
  ) {
    this.#handler = handler;
    this.#send = send;
    this.#addStream = addStream;
  }

  take(message: GuestMessage & { type: "connect" }): void {
    if (message.id < protocolConstants.GUEST_ID_BIT) throw new MalformedPayload(`Asked with id ${message.id}`);
    const handler = this.#handler;
    if (handler === undefined) {
      this.#refuse(message.id, "refused", "no connection to the outside is allowed");
    } else if (this.#pendingAsks >= maxPendingAsks) {
      this.#refuse(message.id, "refused", "too many connections are waiting for an answer");
    } else {
      void this.#ask(handler, message);
    }
  }

  close(): void {
    this.#isOver = true;
  }

  async #ask(handler: EgressHandler, message: GuestMessage & { type: "connect" }): Promise<void> {
    const { id, host, port, protocol } = message;
    this.#pendingAsks += 1;
    try {
      const answer = await handler({ host, port, protocol });
      if (answer.verdict !== "allowed") this.#refuse(id, answer.verdict, answer.reason);
      else if (this.#isOver) answer.socket.destroy();
      else this.#relay(id, answer.socket);
    } catch (error) {
      this.#refuse(id, "unreachable", error instanceof Error ? error.message : String(error));
    } finally {
      this.#pendingAsks -= 1;
    }
  }

  #relay(id: number, socket: Duplex): void {
    const connection = new GuestConnection(this.#addStream(id));
    this.#sendVerdict(id, "allowed", "");
    joinStreams(connection, socket);
    joinStreams(socket, connection);
  }

  #refuse(id: number, verdict: Exclude<keyof typeof verdicts, "allowed">, reason: string): void {
    this.#sendVerdict(id, verdict, reason);
  }

  #sendVerdict(id: number, verdict: keyof typeof verdicts, reason: string): void {
    const payload = new PayloadWriter().u8(verdicts[verdict]).str(reason.slice(0, 512)).finish();
    this.#send(encodeFrame(toGuest.VERDICT, id, payload));
  }
}

/** `pipe` passes the end on, and nothing else: a death of one side must end the other. */
function joinStreams(from: Duplex, to: Duplex): void {
  from.on("error", () => {
    to.destroy();
  });
  from.on("close", () => {
    if (!from.readableEnded) to.destroy();
  });
  from.pipe(to);
}
