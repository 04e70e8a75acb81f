import type { ClientMessage } from "@atoll/protocol";
import type { Principal } from "../auth/principal.ts";
import { inBackground, type Channel, type ChannelLink, type ChannelSources } from "./channel.ts";

/** Sends events from the journal: a slow reader lags behind, and loses nothing that the journal still has. */
export function openEvents(
  link: ChannelLink,
  sources: ChannelSources,
  message: Extract<ClientMessage, { type: "events" }>,
  principal: Principal,
): Channel {
  const { channel, signal } = link;
  const { cursor, sandboxId } = message;
  inBackground(link, async () => {
    for await (const event of sources.events(principal, { cursor, sandboxId, signal })) {
      const message = event.type === "passed" ? { ...event, channel } : { type: "event", channel, event };
      await link.sendBulk(JSON.stringify(message));
    }
  });
  return { link };
}
