import { constants } from "node:os";
import { startHostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { LaunchSource } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import { NodeList, type NodesToMake } from "../guest/guest-nodes.ts";
import { readRecords } from "../guest/tool-records.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { settleAll } from "../support/settle-all.ts";
import type { Template } from "../templates/template.ts";

const lookTimeoutMs = 10 * 60_000;

/**
 * Returns files to start from, with the pipes and sockets that have to be made inside before the sandbox runs. They are
 * searched while it starts: in the layers, and in what it wrote already.
 */
export function withNodes(
  context: EngineContext,
  life: SandboxLife,
  files: LaunchSource,
  signal: AbortSignal,
): LaunchSource {
  const { driver, layout, template } = life.parts;
  if (driver.findDirectories === undefined) return files;
  const layers = template.trees.map((_, tree) => [...(files.frozen[tree] ?? []), layout.layer(tree).upper]);
  const nodes = findNodesInLayers(context.guestPath, template, layers, signal);
  // The error is thrown where this is awaited; a start that fails first does not await it.
  nodes.catch(() => undefined);
  return { ...files, nodes };
}

/**
 * Lists the pipes and sockets in layers (per tree, the directories). A sandbox cannot use the host's, so it replaces
 * them.
 */
async function findNodesInLayers(
  guestPath: string,
  template: Template,
  layers: readonly (readonly string[])[],
  signal: AbortSignal,
): Promise<NodesToMake[]> {
  return settleAll(
    template.trees.map(async ({ at }, tree): Promise<NodesToMake> => {
      const list = new NodeList(`use the pipes and sockets for ${at}`);
      for (const dir of layers[tree] ?? []) await searchLayer(guestPath, dir, list, signal);
      return { at, nodes: list.nodes, how: "replace" };
    }),
  );
}

async function searchLayer(guestPath: string, dir: string, list: NodeList, signal: AbortSignal): Promise<void> {
  const child = await startHostProcess(guestPath, ["tool", "nodes", dir, "below"], {
    signal,
    timeoutMs: lookTimeoutMs,
    stderr: "ignore",
    graceMs: 0,
  });
  try {
    for await (const record of readRecords(child)) list.add(record);
  } finally {
    await child.kill("SIGKILL");
  }
  const { exitCode } = await child.wait();
  signal.throwIfAborted();
  // A sandbox that has written nothing yet has no directory for it.
  if (exitCode === 0 || exitCode === constants.errno.ENOENT) return;
  throw new SandboxError("storage_failed", "Cannot look for pipes and sockets in a layer", { details: { exitCode } });
}
