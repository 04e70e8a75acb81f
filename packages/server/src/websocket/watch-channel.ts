import type { ClientMessage } from "@atoll/protocol";
import type { ChannelAudit } from "./channel-audit.ts";
import { inBackground, type Channel, type ChannelLink, type ChannelSources } from "./channel.ts";

/**
 * Sends changes of files. It needs no window of its own: a watch keeps a bounded number of messages for a slow client.
 */
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
