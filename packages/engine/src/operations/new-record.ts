import type { ContainerId, SandboxRecord } from "@atoll/protocol";
import { newContainerId, newSandboxId } from "../support/ids.ts";

/** Returns the record of a sandbox that is about to be started for the first time, with a new id. */
export function newRecord(
  given: Pick<SandboxRecord, "driver" | "template" | "limits" | "labels">,
): SandboxRecord & { state: "creating"; containerId: ContainerId } {
  const { driver, template, limits, labels } = given;
  const createdAtMs = Date.now();
  return {
    version: 1,
    id: newSandboxId(),
    driver,
    template,
    limits,
    createdAtMs,
    ...(limits.lifetimeMs === undefined ? {} : { expiresAtMs: createdAtMs + limits.lifetimeMs }),
    labels,
    state: "creating",
    containerId: newContainerId(),
  };
}
