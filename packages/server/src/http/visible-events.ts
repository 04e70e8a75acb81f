import type { ApiEvent, SandboxId } from "@atoll/protocol";
import { canSee, seenBy, type Principal } from "../auth/principal.ts";
import type { SandboxManager } from "../manager/sandbox-manager.ts";

/** Events as far as the principal may see them: of its own sandboxes, or of all, and those of the server itself only if it sees all. */
export async function* visibleEvents(
  manager: Pick<SandboxManager, "events" | "ownerOf">,
  principal: Principal | undefined,
  options: { cursor?: number | undefined; sandboxId?: SandboxId | undefined; signal: AbortSignal },
): AsyncGenerator<ApiEvent, void, void> {
  for await (const event of manager.events.follow(options)) {
    if (principal !== undefined && isVisible(manager, principal, event)) yield event;
  }
}

function isVisible(manager: Pick<SandboxManager, "ownerOf">, principal: Principal, event: ApiEvent): boolean {
  if (event.type === "events.lost") return true;
  if ("owner" in event) return seenBy(principal)(event);
  if (!("sandboxId" in event)) return canSee(principal, { id: "", owner: "" });
  return canSee(principal, { id: event.sandboxId, owner: manager.ownerOf(event.sandboxId) ?? "" });
}
