import type { SandboxPaused } from "@atoll/protocol";
import type { ApiClient } from "./api-client.ts";

/**
 * A persistent sandbox with a stored checkpoint, of which the file `note` has the first line, and a second line that
 * was written since.
 */
export async function makeNotedSandbox(api: ApiClient, request: Record<string, unknown> = {}): Promise<string> {
  const { sandbox } = await api.create({ driver: "gvisor", persistent: true, ...request });
  await api.run(sandbox.id, { shell: "echo one >note" });
  const { body } = await api.ask<SandboxPaused>("POST", `/sandboxes/${sandbox.id}/pause`, {});
  if (body.checkpoint !== 1 || body.sandbox.state !== "paused") throw new Error(`Not paused: ${JSON.stringify(body)}`);
  await api.run(sandbox.id, { shell: "echo two >>note" });
  return sandbox.id;
}
