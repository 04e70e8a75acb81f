import type { ApiEvent, SandboxError, SandboxId } from "@atoll/protocol";
import type { Channel, ChannelMessage, ChannelRequest } from "./socket/channel.ts";
import { EventQueue } from "./socket/event-queue.ts";
import type { Socket } from "./socket/socket.ts";

export interface EventOptions {
  /** The cursor of the last event that was seen: the next one comes first. When absent, the events from now on. */
  cursor?: number | undefined;
  /** Selects the events of this sandbox. */
  sandboxId?: string | undefined;
  /** Ends the stream by throwing its reason. */
  signal?: AbortSignal | undefined;
}

/** Yields events in order and once, across broken connections and restarts of the server. */
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
    // If the journal ends before this cursor, `events.lost` has a lower one, and events go on from there.
    const isNew = type === "events.lost" || this.#cursor === undefined || cursor > this.#cursor;
    if (!isNew) return;
    this.#cursor = cursor;
    // The schema is loose here, so that an old client passes an event of a new type on.
    this.queue.push(message.event as ApiEvent);
  }

  onError(error: SandboxError): void {
    this.queue.end(error);
  }
}
