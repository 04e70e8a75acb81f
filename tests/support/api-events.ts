import type { ApiEvent } from "@atoll/protocol";
import { ApiClient } from "./api-client.ts";

type EventOf<Type extends ApiEvent["type"]> = Extract<ApiEvent, { type: Type }>;

/** Waits for the first event of this type about this sandbox. Events that were emitted before the call count, too. */
export async function eventOf<Type extends ApiEvent["type"]>(
  { url, key }: { url: string; key: string },
  type: Type,
  sandboxId: string,
): Promise<EventOf<Type>> {
  const stop = AbortSignal.timeout(180_000);
  const path = `/events?cursor=0&sandboxId=${sandboxId}`;
  const response = await new ApiClient(url, key).fetch("GET", path, { signal: stop });
  const decoder = new TextDecoder();
  let held = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    held += decoder.decode(chunk, { stream: true });
    const lines = held.split("\n");
    held = lines.pop() ?? "";
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      const event = JSON.parse(line.slice("data: ".length)) as ApiEvent;
      if (event.type === type) return event as EventOf<Type>;
    }
  }
  throw new Error(`The stream ended before an event ${type}`);
}
