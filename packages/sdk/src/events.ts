import type { ApiEvent, SandboxError, SandboxId } from "@atoll/protocol";
import type { Channel, ChannelMessage, ChannelRequest } from "./socket/channel.ts";
import { EventQueue } from "./socket/event-queue.ts";
import type { Socket } from "./socket/socket.ts";

export interface EventOptions {
  /** The cursor of the last event that was seen: the next one comes first. Absent: what happens from now on. */
  cursor?: number | undefined;
  /** Only what happens to this sandbox. */
  sandboxId?: string | undefined;
  /** Ends the stream by throwing its reason. */
  signal?: AbortSignal | undefined;
}

/** Events in order and once, across broken connections and restarts of the server. */
export async function* followEvents(
  socket: Socket,
  options: EventOptions = {},
): AsyncGenerator<ApiEvent, void, undefined> {
  options.signal?.throwIfAborted();
  const channel = new EventsChannel(options);
  const link = socket.open(channel);
  try {
    for (;;) {
      const event = await channel.queue.next(options.signal);
      if (event === undefined) return;
      yield event;
    }
  } finally {
    link.close();
  }
}

class EventsChannel implements Channel {
  readonly queue = new EventQueue<ApiEvent>();
  readonly #sandboxId: SandboxId | undefined;
  #cursor: number | undefined;

  constructor({ cursor, sandboxId }: EventOptions) {
    this.#cursor = cursor;
    this.#sandboxId = sandboxId as SandboxId | undefined;
  }

  subscribe(): ChannelRequest {
    return { type: "events", cursor: this.#cursor, sandboxId: this.#sandboxId };
  }

  onMessage(message: Exclude<ChannelMessage, { type: "error" }>): void {
    if (message.type === "passed") this.#cursor = message.cursor;
    if (message.type !== "event") return;
    const { cursor, type } = message.event;
    // A journal that does not reach as far as this cursor says so with a lower one, and goes on from there.
    const isNew = type === "events.lost" || this.#cursor === undefined || cursor > this.#cursor;
    if (!isNew) return;
    this.#cursor = cursor;
    // Loose in the contract, so that an event that is new passes through an old client.
    this.queue.push(message.event as ApiEvent);
  }

  onError(error: SandboxError): void {
    this.queue.end(error);
  }
}
