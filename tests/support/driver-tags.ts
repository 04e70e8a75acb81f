import type { TestTagDefinition } from "vitest/config";
import { isDriverSkipped } from "../../tools/setup/requirements.mjs";

declare module "vitest" {
  interface TaskMeta {
    /** The reporter prints this reason for a test that did not run. */
    whySkipped?: string;
  }
}

export const whySkipped = (driver: string): string => `ATOLL_SKIP names the driver ${driver}`;

/**
 * Returns the tag `gvisor`, for tests that start sandboxes of gVisor. A file has the tag by the line `// @module-tag
 * gvisor`, a group or a test by `{ tags: "gvisor" }`. Tagged tests are skipped only if `ATOLL_SKIP` names gvisor. Where
 * runsc is merely missing, they fail.
 */
export function driverTags(env: NodeJS.ProcessEnv): TestTagDefinition[] {
  const tag = { name: "gvisor", description: "starts sandboxes of gVisor, so it needs runsc" };
  if (!isDriverSkipped("gvisor", env)) return [tag];
  return [{ ...tag, skip: true, meta: { whySkipped: whySkipped("gvisor") } }];
}
