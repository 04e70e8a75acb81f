import { auditHandlers } from "./audit-handlers.ts";
import { commandHandlers } from "./command-handlers.ts";
import { fileHandlers } from "./file-handlers.ts";
import type { Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";
import { sandboxHandlers } from "./sandbox-handlers.ts";
import { serverHandlers } from "./server-handlers.ts";
import { snapshotHandlers } from "./snapshot-handlers.ts";

export function createHandlers(parts: Parts): Handlers {
  return {
    ...sandboxHandlers(parts),
    ...commandHandlers(parts),
    ...fileHandlers(parts),
    ...snapshotHandlers(parts),
    ...auditHandlers(parts),
    ...serverHandlers(parts),
  };
}
