import { SandboxError, websocketProtocol } from "@atoll/protocol";
import { inBackground, type Channel, type ChannelLink } from "./channel.ts";

type Message = Parameters<NonNullable<Channel["onMessage"]>>[0];

const mostMessages = 1_000;

/** A channel to a sandbox that is on its way here. What the client sends meanwhile waits for it, in order. */
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
      for (const give of this.#waiting.splice(0)) give(channel);
    });
  }

  onMessage(message: Message): void {
    this.#give(0, (channel) => channel.onMessage?.(message));
  }

  onStdin(offset: number, bytes: Buffer): void {
    this.#give(bytes.byteLength, (channel) => channel.onStdin?.(offset, bytes));
  }

  #give(bytes: number, give: (channel: Channel) => void): void {
    if (this.#channel !== undefined) return give(this.#channel);
    this.#waitingBytes += bytes;
    const hasRoom = this.#waiting.length < mostMessages && this.#waitingBytes <= websocketProtocol.windowBytes;
    const release = hasRoom ? this.link.hold(bytes) : undefined;
    if (release !== undefined) {
      this.link.signal.addEventListener("abort", release, { once: true });
      this.#waiting.push((channel) => {
        release();
        give(channel);
      });
      return;
    }
    this.link.fail(
      new SandboxError("limit_reached", "Cannot take more messages: the sandbox is not here yet", {
        suggestion: "Wait for `following` before sending more.",
      }),
    );
  }
}
