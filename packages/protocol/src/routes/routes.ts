import { auditRoutes } from "./audit-routes.ts";
import { commandRoutes } from "./command-routes.ts";
import { fileRoutes } from "./file-routes.ts";
import { sandboxRoutes } from "./sandbox-routes.ts";
import { serverRoutes } from "./server-routes.ts";
import { snapshotRoutes } from "./snapshot-routes.ts";

/** All routes of the HTTP interface. */
export const routes = {
  ...sandboxRoutes,
  ...commandRoutes,
  ...fileRoutes,
  ...snapshotRoutes,
  ...auditRoutes,
  ...serverRoutes,
} as const;
export type RouteName = keyof typeof routes;
