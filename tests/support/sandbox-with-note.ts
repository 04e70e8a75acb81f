import type { SandboxPaused } from "@atoll/protocol";
import type { ApiClient } from "./api-client.ts";

/**
 * Creates a persistent sandbox with a stored checkpoint. In the checkpoint the file `note` has one line; the running
 * sandbox has appended a second one.
 */
export async function createSandboxWithNote(api: ApiClient, request: Record<string, unknown> = {}): Promise<string> {
  const { sandbox } = await api.create({ driver: "gvisor", persistent: true, ...request });
  await api.run(sandbox.id, { shell: "echo one >note" });
  const { body } = await api.ask<SandboxPaused>("POST", `/sandboxes/${sandbox.id}/pause`, {});
  if (body.checkpoint !== 1 || body.sandbox.state !== "paused")
    throw new Error(`The sandbox was not paused: ${JSON.stringify(body)}`);
  await api.run(sandbox.id, { shell: "echo two >>note" });
  return sandbox.id;
}
