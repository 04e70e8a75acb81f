import { deadlineAfter, isSandboxError, type CheckpointManifest, type ContainerRef } from "@atoll/protocol";
import { listFewNodes, listNodes, type Nodes, type NodesRequest } from "../guest/guest-nodes.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { findPlaces } from "../snapshots/nodes-in-memory.ts";

const guestAnswerMs = 10_000;

/**
 * Finds the directories that `prepareGuest` will search. It takes a moment and changes nothing. Returns undefined if
 * they cannot be found.
 */
export async function findNodePlaces(
  life: SandboxLife,
  container: ContainerRef,
): Promise<NodesRequest["places"] | undefined> {
  return findPlaces(life, container).catch(() => undefined);
}

/**
 * Makes the guest ready for a checkpoint: it sends nothing more until it is greeted. First it lists the pipes and
 * sockets that are only in memory, for sandboxes that will start from the files of the checkpoint alone. If it cannot
 * list them, or the list is malformed, the checkpoint is made all the same: they are in its memory.
 */
export async function prepareGuest(
  { channel }: SandboxLife,
  places: NodesRequest["places"] | undefined,
): Promise<Pick<CheckpointManifest, "nodes">> {
  const answerDeadline = (): AbortSignal => deadlineAfter(guestAnswerMs);
  if (places === undefined) {
    await channel.prepareCheckpoint(answerDeadline());
    return {};
  }
  const question = { places, where: "synced" } as const;
  // Both requests are sent at once, because the wait for an answer takes longer than the work.
  const few = listFewNodes(channel, question, answerDeadline());
  few.catch(() => undefined);
  await channel.prepareCheckpoint(answerDeadline());
  const nodes = await few.catch((error: unknown) => {
    if (isSandboxError(error, "guest_violation")) return "nonsense" as const;
    throw error;
  });
  if (nodes === "nonsense") return {};
  if (nodes !== undefined) return written(nodes);
  await channel.greet(answerDeadline());
  const many = await listNodes(channel, question, answerDeadline()).catch(() => undefined);
  await channel.prepareCheckpoint(answerDeadline());
  return many === undefined ? {} : written(many);
}

function written(nodes: Nodes): Pick<CheckpointManifest, "nodes"> {
  return { nodes: nodes.map((node) => node.toString("base64")) };
}
