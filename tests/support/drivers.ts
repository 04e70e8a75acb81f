import type { DriverName } from "@atoll/protocol";
import { describe, type TestContext } from "vitest";
import { isDriverSkipped } from "../../tools/setup/requirements.mjs";
import { whySkipped } from "./driver-tags.ts";

/** A group of tests for each driver; `%s` in its name is the driver. */
export function describeDrivers(name: string, body: (driver: DriverName) => void): void {
  // Name and body are the caller's.
  // oxlint-disable vitest/valid-title, vitest/valid-describe-callback
  describe.for(["gvisor"] as const)(name, { tags: "gvisor" }, body);
  describe.for(["local"] as const)(name, body);
  // oxlint-enable vitest/valid-title, vitest/valid-describe-callback
}

/** For a row of a table of tests, which cannot have a tag of its own. */
export function needsDriver(driver: DriverName, { skip }: TestContext): void {
  // Any Linux has what the local driver needs.
  if (driver === "local") return;
  skip(isDriverSkipped(driver), whySkipped(driver));
}
