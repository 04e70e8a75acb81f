import type { TestTagDefinition } from "vitest/config";
import { isDriverSkipped } from "../../tools/setup/requirements.mjs";

declare module "vitest" {
  interface TaskMeta {
    /** Read by the reporter that lists what did not run. */
    whySkipped?: string;
  }
}

export const whySkipped = (driver: string): string => `ATOLL_SKIP names the driver ${driver}`;

/**
 * Tests that start sandboxes of gVisor have the tag `gvisor`: a file by the line `// @module-tag gvisor`, a group or a
 * test by `{ tags: "gvisor" }`. They do not run where `ATOLL_SKIP` says so. Nothing else leaves them out: where runsc
 * is merely missing, they fail.
 */
export function driverTags(env: NodeJS.ProcessEnv): TestTagDefinition[] {
  const tag = { name: "gvisor", description: "starts sandboxes of gVisor, so it needs runsc" };
  if (!isDriverSkipped("gvisor", env)) return [tag];
  return [{ ...tag, skip: true, meta: { whySkipped: whySkipped("gvisor") } }];
}
