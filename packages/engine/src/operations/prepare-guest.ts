import { deadlineAfter, isSandboxError, type CheckpointManifest, type ContainerRef } from "@atoll/protocol";
import { listFewNodes, listNodes, type Nodes, type NodesQuestion } from "../guest/guest-nodes.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { findPlaces } from "../snapshots/nodes-in-memory.ts";

const guestAnswerMs = 10_000;

/** Where `prepareGuest` will look. It takes a moment and changes nothing. Undefined: that cannot be told. */
export async function findNodePlaces(
  life: SandboxLife,
  container: ContainerRef,
): Promise<NodesQuestion["places"] | undefined> {
  return findPlaces(life, container).catch(() => undefined);
}

/**
 * Makes the guest ready for a checkpoint: it says nothing more until it is greeted. The last it says are the pipes and
 * sockets that are in memory only, for those who go on with the files of the checkpoint alone. If it cannot list them,
 * or what it says is no such list, the checkpoint is made all the same: they are in its memory.
 */
export async function prepareGuest(
  { channel }: SandboxLife,
  places: NodesQuestion["places"] | undefined,
): Promise<Pick<CheckpointManifest, "nodes">> {
  const answerBy = (): AbortSignal => deadlineAfter(guestAnswerMs);
  if (places === undefined) {
    await channel.prepareCheckpoint(answerBy());
    return {};
  }
  const question = { places, where: "synced" } as const;
  // Both questions at once: each answer takes longer to come than to give.
  const few = listFewNodes(channel, question, answerBy());
  few.catch(() => undefined);
  await channel.prepareCheckpoint(answerBy());
  const nodes = await few.catch((error: unknown) => {
    if (isSandboxError(error, "guest_violation")) return "nonsense" as const;
    throw error;
  });
  if (nodes === "nonsense") return {};
  if (nodes !== undefined) return written(nodes);
  await channel.greet(answerBy());
  const many = await listNodes(channel, question, answerBy()).catch(() => undefined);
  await channel.prepareCheckpoint(answerBy());
  return many === undefined ? {} : written(many);
}

function written(nodes: Nodes): Pick<CheckpointManifest, "nodes"> {
  return { nodes: nodes.map((node) => node.toString("base64")) };
}
