import type { CheckpointManifest } from "@atoll/protocol";
import type { ImageNeeds, LaunchSource } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { Nodes } from "../guest/guest-nodes.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";

/** Returns the files of a checkpoint to start from; without layers that is the template alone. */
export function filesOf(
  context: EngineContext,
  life: SandboxLife,
  { layers }: Pick<CheckpointManifest, "layers">,
): LaunchSource {
  const { template } = life.parts;
  return { frozen: context.layers.directories(layers, template.trees.length) };
}

/** Adds the memory of checkpoint `n`, and what it needs, to its files. */
export function withMemory(
  context: EngineContext,
  life: SandboxLife,
  files: LaunchSource,
  n: number,
  { guest, platform }: ImageNeeds,
): LaunchSource {
  const { memoryDir } = life.parts.layout.checkpoint(n);
  return { ...files, memoryDir, guestLayer: context.layout.guestLayer(guest), platform };
}

/** Adds the pipes and sockets that were in the memory of a checkpoint to its files, for a start without that memory. */
export function withSavedNodes(files: LaunchSource, manifest: CheckpointManifest): LaunchSource {
  return { ...files, nodes: Promise.resolve([{ at: "/", nodes: nodesOf(manifest), how: "missing" }]) };
}

export function nodesOf({ nodes = [] }: Pick<CheckpointManifest, "nodes">): Nodes {
  return nodes.map((node) => Buffer.from(node, "base64"));
}

export function needsOf({ guest, runtime }: Pick<CheckpointManifest, "guest" | "runtime">): ImageNeeds {
  return { guest, platform: runtime.platform };
}

export function layerBytesOf({ layers }: Pick<CheckpointManifest, "layers">): number {
  return layers.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}
