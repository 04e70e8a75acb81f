import type { DriverName } from "@atoll/protocol";
import { describe, type TestContext } from "vitest";
import { isDriverSkipped } from "../../tools/setup/requirements.mjs";
import { whySkipped } from "./driver-tags.ts";

/** Defines a group of tests for each driver; `%s` in its name is the driver. */
export function describeDrivers(name: string, body: (driver: DriverName) => void): void {
  // The caller passes the name and the body.
  // oxlint-disable vitest/valid-title, vitest/valid-describe-callback
  describe.for(["gvisor"] as const)(name, { tags: "gvisor" }, body);
  describe.for(["local"] as const)(name, body);
  // oxlint-enable vitest/valid-title, vitest/valid-describe-callback
}

/** Skips a row of a table of tests whose driver is not to be tested, because a row cannot have a tag of its own. */
export function needsDriver(driver: DriverName, { skip }: TestContext): void {
  // The local driver needs nothing that a Linux machine could lack.
  if (driver === "local") return;
  skip(isDriverSkipped(driver), whySkipped(driver));
}
