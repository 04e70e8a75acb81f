import type { ClientMessage } from "@atoll/protocol";
import type { ChannelAudit } from "./channel-audit.ts";
import { inBackground, type Channel, type ChannelLink, type ChannelSources } from "./channel.ts";

/** Changes of files. The socket's own flow is window enough: a watch keeps a bounded number for who is slow. */
export function openWatch(
  link: ChannelLink,
  sources: ChannelSources,
  message: Extract<ClientMessage, { type: "watch" }>,
  audit: ChannelAudit,
): Channel {
  const { channel, signal } = link;
  const { type: _, channel: __, ...request } = message;
  const watch = async (): Promise<void> => {
    await sources.wake(message.sandboxId);
    const { id, messages } = sources.watches.follow(sources.files(message.sandboxId), request, signal);
    link.send({ type: "watching", channel, watch: id });
    for await (const event of messages) await link.sendBulk(JSON.stringify({ type: "changed", channel, event }));
  };
  inBackground(link, async () => {
    await audit.each("watchFiles", {}, watch);
    link.end();
  });
  return { link };
}
