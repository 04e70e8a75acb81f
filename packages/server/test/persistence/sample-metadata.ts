import { CreateSandbox, SandboxLimits, TemplateName, type SandboxId } from "@atoll/protocol";
import { newSettings } from "../../src/manager/sandbox-settings.ts";
import type { SandboxMetadata } from "../../src/persistence/sandbox-metadata.ts";

/** Returns the metadata of a sandbox that runs on this server, and was never stored. */
export function metadataOf(id: SandboxId, server = "a"): SandboxMetadata {
  const request = CreateSandbox.parse({ persistent: true, labels: { job: "1" }, env: { SECRET: "x" } });
  const template = TemplateName.parse("host");
  return {
    version: 1,
    id,
    facts: newSettings(request, { owner: "key", tokenHash: "0".repeat(64), isOneOff: false }),
    record: { id, driver: "gvisor", template, limits: SandboxLimits.parse({}), createdAtMs: 1, labels: {} },
    state: "running",
    server: { id: server, url: `http://${server}` },
    nextCheckpoint: 2,
    runningCommands: 0,
    isKilled: false,
  };
}
