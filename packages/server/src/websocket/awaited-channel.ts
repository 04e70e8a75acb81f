import { SandboxError, websocketProtocol } from "@atoll/protocol";
import { inBackground, type Channel, type ChannelLink } from "./channel.ts";

type Message = Parameters<NonNullable<Channel["onMessage"]>>[0];

const mostMessages = 1_000;

/** A channel to a sandbox that is being acquired. Messages of the client are queued until then, in order. */
export class AwaitedChannel implements Channel {
  readonly link: ChannelLink;
  readonly #waiting: ((channel: Channel) => void)[] = [];
  #waitingBytes = 0;
  #channel: Channel | undefined;

  constructor(link: ChannelLink, open: () => Promise<Channel>) {
    this.link = link;
    inBackground(link, async () => {
      const channel = await open();
      this.#channel = channel;
      for (const deliver of this.#waiting.splice(0)) deliver(channel);
    });
  }

  onMessage(message: Message): void {
    this.#deliver(0, (channel) => channel.onMessage?.(message));
  }

  onStdin(offset: number, bytes: Buffer): void {
    this.#deliver(bytes.byteLength, (channel) => channel.onStdin?.(offset, bytes));
  }

  #deliver(bytes: number, deliver: (channel: Channel) => void): void {
    if (this.#channel !== undefined) return deliver(this.#channel);
    this.#waitingBytes += bytes;
    const hasRoom = this.#waiting.length < mostMessages && this.#waitingBytes <= websocketProtocol.windowBytes;
    const release = hasRoom ? this.link.buffer(bytes) : undefined;
    if (release !== undefined) {
      this.link.signal.addEventListener("abort", release, { once: true });
      this.#waiting.push((channel) => {
        release();
        deliver(channel);
      });
      return;
    }
    this.link.fail(
      new SandboxError("limit_reached", "Cannot accept more messages: the sandbox is still being acquired", {
        suggestion: "Wait for `following` before sending more.",
      }),
    );
  }
}
