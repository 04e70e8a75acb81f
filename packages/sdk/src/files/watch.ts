import type { SandboxError, SandboxId, WatchMessage } from "@atoll/protocol";
import type { Channel, ChannelMessage, ChannelRequest } from "../socket/channel.ts";
import { EventQueue } from "../socket/event-queue.ts";
import type { Socket } from "../socket/socket.ts";

interface WatchRequest {
  sandboxId: SandboxId;
  path: string;
  user?: string | undefined;
  recursive?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Yields changes in order and once: after a broken connection the watch continues behind the last change that was
 * yielded.
 */
export async function* watchFiles(
  socket: Socket,
  request: WatchRequest,
): AsyncGenerator<WatchMessage, void, undefined> {
  request.signal?.throwIfAborted();
  const channel = new WatchChannel(request);
  const link = socket.open(channel);
  try {
    for (;;) {
      const change = await channel.queue.next(request.signal);
      if (change === undefined) return;
      yield change;
      // The path itself is gone, so no change can follow.
      if (change.kind === "gone") return;
    }
  } finally {
    link.close();
  }
}

class WatchChannel implements Channel {
  readonly queue = new EventQueue<WatchMessage>();
  readonly #request: WatchRequest;
  #watch: string | undefined;
  #cursor: number | undefined;

  constructor(request: WatchRequest) {
    this.#request = request;
  }

  subscribe(): ChannelRequest {
    const { sandboxId, path, user, recursive } = this.#request;
    return { type: "watch", sandboxId, path, user, recursive, watch: this.#watch, cursor: this.#cursor };
  }

  onMessage(message: Exclude<ChannelMessage, { type: "error" }>): void {
    if (message.type === "watching") {
      // The cursors of another watch start again.
      if (this.#watch !== message.watch) this.#cursor = undefined;
      this.#watch = message.watch;
    } else if (message.type === "changed") {
      if (this.#cursor !== undefined && message.event.cursor <= this.#cursor) return;
      this.#cursor = message.event.cursor;
      this.queue.push(message.event);
    }
  }

  onError(error: SandboxError): void {
    this.queue.end(error);
  }
}
