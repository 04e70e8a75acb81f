import { run } from "@atoll/host";
import { deadlineAfter, firstToAbort, SandboxError, type ContainerRef } from "@atoll/protocol";
import { listNodes, neverNs, type Nodes, type NodeDirectory } from "../guest/guest-nodes.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { settleAll } from "../support/settle-all.ts";
import type { Template } from "../templates/template.ts";

/** Root inside can stop the tool that lists them. */
const listTimeoutMs = 45_000;
const placeTimeoutMs = 60_000;

/**
 * The position in an entry with its length before it: type, mode, owner, group, links, size, inode and time come before
 * the length of the name and the name.
 */
const nameLengthOffset = 4 + 1 + 4 * 4 + 3 * 8;
const nameOffset = nameLengthOffset + 4;

/**
 * Lists the pipes and sockets that a running sandbox has only in memory, with names that begin at its root. Their
 * directories are written to the host's disk, with their times. The list is empty for a driver that has everything on
 * disk.
 */
export async function findNodesInMemory(
  life: SandboxLife,
  container: ContainerRef,
  signal: AbortSignal,
): Promise<Nodes> {
  const places = await findPlaces(life, container);
  return listNodes(life.channel, { places, where: "synced" }, timely(signal));
}

/** Returns the directories that may have some. */
export async function findPlaces(life: SandboxLife, container: ContainerRef): Promise<NodeDirectory[]> {
  const { driver, layout } = life.parts;
  const found = (await driver.findDirectories?.(container, layout)) ?? [];
  return found.map(({ path, ...rest }) => ({ path: path.byteLength === 0 ? Buffer.from(".") : path, ...rest }));
}

/** Returns the nodes of `before` that still exist, unchanged. */
export async function findUnchangedNodes(life: SandboxLife, before: Nodes, signal: AbortSignal): Promise<Nodes> {
  const directories = new Set(before.map((node) => directoryOf(nameOf(node))));
  const places = [...directories].map((name) => ({ path: Buffer.from(name, "latin1"), emptyAtNs: neverNs }));
  const now = await listNodes(life.channel, { places, where: "in" }, timely(signal));
  const present = new Set(now.map((node) => node.toString("latin1")));
  return before.filter((node) => present.has(node.toString("latin1")));
}

function timely(signal: AbortSignal): AbortSignal {
  return firstToAbort(signal, deadlineAfter(listTimeoutMs));
}

/**
 * Makes the nodes in directories of the host that no other process writes to, one for each tree of the template, where
 * nothing exists in their place. Rejects with `storage_failed`.
 */
export async function placeNodes(
  guestPath: string,
  { template, uppers, nodes }: { template: Template; uppers: readonly string[]; nodes: Nodes },
  signal: AbortSignal,
): Promise<void> {
  const perTree: Buffer[][] = template.trees.map(() => []);
  for (const node of nodes) {
    const path = `/${nameOf(node)}`;
    // A later tree is mounted over the earlier ones, so the last tree that has the path counts.
    const tree = template.trees.findLastIndex(({ at }) => at === "/" || path.startsWith(`${at}/`));
    const at = template.trees[tree]?.at ?? "/";
    perTree[tree]?.push(renamed(node, path.slice(at === "/" ? 1 : at.length + 1)));
  }
  await settleAll(
    uppers.map(async (upper, tree) => {
      const input = Buffer.concat(perTree[tree] ?? []);
      if (input.byteLength === 0) return;
      const words = ["tool", "mknodes", upper, "missing"];
      const { exitCode, stderr } = await run(guestPath, words, { input, signal, timeoutMs: placeTimeoutMs });
      if (exitCode === 0) return;
      throw new SandboxError("storage_failed", `Cannot put pipes and sockets into a layer: ${stderr.trim()}`);
    }),
  );
}

/** Names may be any bytes, which this encoding keeps. */
function nameOf(node: Buffer): string {
  if (node.byteLength < nameOffset) throw malformed();
  const end = nameOffset + node.readUInt32LE(nameLengthOffset);
  if (end > node.byteLength) throw malformed();
  return node.toString("latin1", nameOffset, end);
}

function directoryOf(name: string): string {
  const slash = name.lastIndexOf("/");
  return slash < 0 ? "." : name.slice(0, slash);
}

function renamed(node: Buffer, name: string): Buffer {
  const shorter = nameOf(node).length - name.length;
  const bytes = Buffer.concat([
    node.subarray(0, nameOffset),
    Buffer.from(name, "latin1"),
    node.subarray(nameOffset + name.length + shorter),
  ]);
  bytes.writeUInt32LE(node.readUInt32LE(0) - shorter, 0);
  bytes.writeUInt32LE(name.length, nameLengthOffset);
  return bytes;
}

function malformed(): SandboxError {
  return new SandboxError("guest_violation", "Cannot use the guest's answer: it is not a list of pipes and sockets");
}
