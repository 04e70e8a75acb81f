import type { ApiEvent, SandboxId } from "@atoll/protocol";
import { canSee, seenBy, type Principal } from "../auth/principal.ts";
import type { Passed } from "../events/event-journal.ts";
import type { SandboxManager } from "../manager/sandbox-manager.ts";

/**
 * Yields the events that the principal may see: those of its own sandboxes, or of all, and those of the server itself
 * only if it may see all. It also yields the cursors of skipped events.
 */
export async function* visibleEvents(
  { events }: Pick<SandboxManager, "events">,
  principal: Principal | undefined,
  options: { cursor?: number | undefined; sandboxId?: SandboxId | undefined; signal: AbortSignal },
): AsyncGenerator<ApiEvent | Passed, void, void> {
  if (principal === undefined) return;
  // An event from before a sandbox had an owner, as in the pool, is stored without one.
  const ownerOf = (id: SandboxId): string => events.ownerOf(id) ?? "";
  const sees = (event: ApiEvent, owner: string | undefined): boolean =>
    isVisible(principal, event, (id) => owner ?? ownerOf(id));
  yield* events.steps({ ...options, sees });
}

function isVisible(principal: Principal, event: ApiEvent, ownerOf: (id: SandboxId) => string): boolean {
  if ("owner" in event) return seenBy(principal)(event);
  if (!("sandboxId" in event)) return canSee(principal, { id: "", owner: "" });
  return canSee(principal, { id: event.sandboxId, owner: ownerOf(event.sandboxId) });
}
