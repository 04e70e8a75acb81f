import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { GuestChannel } from "./channel.ts";
import { ToolRun } from "./tool-run.ts";

/** Of the entries of one list. Nobody has so many pipes and sockets; more of them would be held in memory, here and wherever they are sent. */
const maxNodesBytes = 1024 * 1024;

/** The number and not the name: a sandbox may write what it likes into its `/etc/passwd`. */
const root = "0:0";

/** No inode was changed then. */
const never = -(2n ** 63n);

/** Pipes and sockets as the guest's tools `nodes` and `mknodes` write and read them, one buffer for each. */
export type Nodes = readonly Buffer[];

/** Some to be made in a sandbox before anything runs in it, each in the place of one that it sees and cannot use, and as that is. */
export interface NodesOrder {
  /** The directory that their names begin in. */
  at: string;
  nodes: Nodes;
}

/** A directory to look for some in. */
export interface NodesPlace {
  /** Relative. What is no directory, or none any more, has nothing in it. */
  path: Buffer;
  /** The time of the last change of its inode in which it has none for sure. */
  emptyAtNs?: bigint;
}

export interface NodesQuestion {
  at: string;
  places: readonly NodesPlace[];
  /** `synced`: the directories of what is found are on the host's disk afterwards, with their times. */
  where: "in" | "synced";
}

/** Lists the pipes and sockets in some directories of a sandbox. Rejects with `limit_reached` if they are too many. */
export async function listNodes(
  channel: GuestChannel,
  { at, places, where }: NodesQuestion,
  signal: AbortSignal,
): Promise<Nodes> {
  if (places.length === 0) return [];
  const what = `list pipes and sockets of ${at}`;
  const tool = await ToolRun.start(channel, ["nodes", at, where], { user: root, cwd: "/", stdin: true, signal });
  const end = Buffer.alloc(1);
  const lines = places.flatMap(({ path, emptyAtNs = never }) => [Buffer.from(`${emptyAtNs} `), path, end]);
  const fed = feed(tool, Buffer.concat(lines));
  const list = new NodeList(what);
  try {
    for await (const record of tool.records(what)) list.add(record);
  } catch (error) {
    // A guest of an older version is in memory since it was paused. What it cannot list was never in a snapshot.
    if (isSandboxError(error, "file_error") && error.details["errno"] === "ENOSYS") return [];
    throw error;
  } finally {
    await fed.catch(() => undefined);
  }
  return list.nodes;
}

export async function makeNodes(channel: GuestChannel, { at, nodes }: NodesOrder, signal: AbortSignal): Promise<void> {
  if (nodes.length === 0) return;
  const tool = await ToolRun.start(channel, ["mknodes", at, "anew"], { user: root, cwd: "/", stdin: true, signal });
  tool.listen();
  await feed(tool, Buffer.concat(nodes)).catch(() => undefined);
  await tool.finish(`make pipes and sockets in ${at}`);
}

async function feed(tool: ToolRun, bytes: Buffer): Promise<void> {
  if (await tool.feed(bytes)) await tool.process.closeStdin();
}

/** Gathers what a tool told. */
export class NodeList {
  readonly nodes: Buffer[] = [];
  readonly #what: string;
  #bytes = 0;

  constructor(what: string) {
    this.#what = what;
  }

  add(record: Buffer): void {
    this.#bytes += 4 + record.byteLength;
    if (this.#bytes > maxNodesBytes) {
      throw new SandboxError("limit_reached", `Cannot ${this.#what}: there are more than ${this.nodes.length}`, {
        suggestion: "Remove those that nobody uses.",
        details: { nodes: this.nodes.length },
      });
    }
    const length = Buffer.alloc(4);
    length.writeUInt32LE(record.byteLength);
    this.nodes.push(Buffer.concat([length, record]));
  }
}
