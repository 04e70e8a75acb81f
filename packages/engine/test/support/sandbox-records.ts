import { type SandboxId, SandboxLimits, SandboxRecord, type SandboxState } from "@atoll/protocol";
import { newContainerId, newSandboxId } from "../../src/support/ids.ts";

/** Makes a record in a state, with the fields that only this state has. */
export function recordIn<S extends SandboxState>(
  state: S,
  id: SandboxId = newSandboxId(),
): SandboxRecord & { state: S } {
  const containerId = newContainerId();
  const container = { id: containerId, pid: 4_194_000, startTicks: 1, bootId: "another boot" };
  const reason = { kind: "asked", message: "it was killed on request" } as const;
  const parts = {
    creating: { containerId },
    running: { container },
    pausing: { container, checkpoint: 3 },
    paused: { checkpoint: 3 },
    resuming: { checkpoint: 3, containerId },
    killing: { reason },
    killed: { reason, endedAtMs: 2 },
    failed: { reason, endedAtMs: 2, survives: ["files"] },
    released: {},
  }[state];
  const common = { version: 1, id, driver: "gvisor", template: "host", createdAtMs: 1, labels: {} };
  const record = SandboxRecord.parse({ ...common, limits: SandboxLimits.parse({}), state, ...parts });
  // The fields are those of this state.
  return record as SandboxRecord & { state: S };
}
