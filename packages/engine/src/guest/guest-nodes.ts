import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { GuestChannel } from "./channel.ts";
import { protocolConstants } from "./frames.ts";
import { encodeNodes } from "./requests.ts";
import { badAnswer, ToolRun } from "./tool-run.ts";
import { MalformedPayload, PayloadReader } from "./wire.ts";

/**
 * Of the entries of one list. Nobody has so many pipes and sockets; more of them would be held in memory, here and
 * wherever they are sent.
 */
const maxNodesBytes = 1024 * 1024;

/** Mode, owner, group and links, then size, inode and time. */
const attributeBytes = 4 * 4 + 3 * 8;
/** As the guest has it. */
const maxNameBytes = 8_000;

/** The number and not the name: a sandbox may write what it likes into its `/etc/passwd`. */
const root = "0:0";

/** No inode was changed then: the directory is looked at whenever it was changed. */
export const neverNs = -(2n ** 63n);

/** Pipes and sockets as the guest's tools `nodes` and `mknodes` write and read them, one buffer for each. */
export type Nodes = readonly Buffer[];

/** Some to be made in a sandbox before anything runs in it. */
export interface NodesOrder {
  /** The directory that their names begin in. */
  at: string;
  nodes: Nodes;
  /**
   * `anew`: each in the place of one that the sandbox sees and cannot use, and as that is. `missing`: each where
   * nothing is.
   */
  how: "replace" | "missing";
}

/** A directory to look for some in. */
export interface NodesPlace {
  /** From the root, without a slash before it. What is no directory, or none any more, has nothing in it. */
  path: Buffer;
  /** The time of the last change of its inode in which it has none for sure. */
  emptyAtNs: bigint;
}

export interface NodesQuestion {
  places: readonly NodesPlace[];
  /** `synced`: the directories of what is found are on the host's disk afterwards, with their times. */
  where: "in" | "synced";
}

/**
 * Lists the pipes and sockets in some directories of a sandbox. Rejects with `limit_reached` if they are too many, and
 * with `guest_violation` for what is none.
 */
export async function listNodes(
  channel: GuestChannel,
  { places, where }: NodesQuestion,
  signal: AbortSignal,
): Promise<Nodes> {
  if (places.length === 0) return [];
  const what = "list pipes and sockets";
  const few = await listFewNodes(channel, { places, where }, signal);
  if (few !== undefined) return few;
  const tool = await ToolRun.start(channel, ["nodes", "/", where], { user: root, cwd: "/", stdin: true, signal });
  const end = Buffer.alloc(1);
  const lines = places.flatMap(({ path, emptyAtNs }) => [Buffer.from(`${emptyAtNs} `), path, end]);
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

/**
 * By the guest itself, in a tenth of the time that a tool takes. Asks at once. Undefined: that is not for it, because
 * there is much to look at or it is of an older version.
 */
export async function listFewNodes(
  channel: GuestChannel,
  { places, where }: NodesQuestion,
  signal: AbortSignal,
): Promise<Nodes | undefined> {
  const question = encodeNodes(where, places);
  if (question.byteLength > protocolConstants.MAX_TO_GUEST) return undefined;
  try {
    return (await channel.findNodes(question, signal)).map(asNode);
  } catch (error) {
    if (isSandboxError(error, "spawn_failed")) return undefined;
    throw error;
  }
}

export async function makeNodes(
  channel: GuestChannel,
  { at, nodes, how }: NodesOrder,
  signal: AbortSignal,
): Promise<void> {
  if (nodes.length === 0) return;
  const tool = await ToolRun.start(channel, ["mknodes", at, how], { user: root, cwd: "/", stdin: true, signal });
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
    this.nodes.push(asNode(record));
  }
}

/**
 * Whoever wrote it is not trusted: what is kept in a manifest, and made again elsewhere, is nothing but a pipe or a
 * socket below the root.
 */
function asNode(record: Buffer): Buffer {
  try {
    assertNode(new PayloadReader(record));
  } catch (error) {
    throw error instanceof MalformedPayload ? badAnswer(error) : error;
  }
  const length = Buffer.alloc(4);
  length.writeUInt32LE(record.byteLength);
  return Buffer.concat([length, record]);
}

function assertNode(reader: PayloadReader): void {
  const type = String.fromCharCode(reader.u8());
  if (type !== "p" && type !== "s") throw new MalformedPayload(`Neither a pipe nor a socket: ${type}`);
  reader.bytes(attributeBytes);
  const name = reader.bytes(reader.u32()).toString("latin1");
  const isSafe = name.split("/").every((part) => part !== "" && part !== "." && part !== "..");
  if (!isSafe || name.length > maxNameBytes || name.includes("\0")) throw new MalformedPayload("No name of a file");
  // It leads nowhere.
  if (reader.u32() !== 0) throw new MalformedPayload("A pipe or a socket with a target");
  reader.end();
}
