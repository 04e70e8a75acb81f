import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { GuestChannel } from "./channel.ts";
import { protocolConstants } from "./frames.ts";
import { encodeNodes } from "./requests.ts";
import { badAnswer, ToolRun } from "./tool-run.ts";
import { MalformedPayload, PayloadReader } from "./wire.ts";

/**
 * The limit of the entries of one list. No real sandbox has so many pipes and sockets, and they are kept in memory,
 * here and wherever they are sent.
 */
const maxNodesBytes = 1024 * 1024;

/** Mode, owner, group and links, then size, inode and time. */
const attributeBytes = 4 * 4 + 3 * 8;
/** The guest has the same limit. */
const maxNameBytes = 8_000;

/** The numeric id and not the name, because a sandbox may change its `/etc/passwd`. */
const root = "0:0";

/** No inode was changed at this time, so the directory is always searched. */
export const neverNs = -(2n ** 63n);

/** Pipes and sockets as the guest's tools `nodes` and `mknodes` write and read them, one buffer for each. */
export type Nodes = readonly Buffer[];

/** Pipes and sockets to be made in a sandbox before anything runs in it. */
export interface NodesToMake {
  /** The directory that their names begin in. */
  at: string;
  nodes: Nodes;
  /**
   * `replace`: each takes the place of one that the sandbox sees and cannot use, and gets its attributes. `missing`:
   * each is made where nothing exists.
   */
  how: "replace" | "missing";
}

/** A directory to search for pipes and sockets. */
export interface NodeDirectory {
  /**
   * The path from the root, without a leading slash. A path that is no directory, or no longer one, has nothing in it.
   */
  path: Buffer;
  /** If the inode was last changed at this time, the directory certainly has no pipe or socket. */
  emptyAtNs: bigint;
}

export interface NodesRequest {
  places: readonly NodeDirectory[];
  /** With `synced`, the directories of what is found are on the host's disk afterwards, with their times. */
  where: "in" | "synced";
}

/**
 * Lists the pipes and sockets in some directories of a sandbox. Rejects with `limit_reached` if there are too many, and
 * with `guest_violation` if the guest lists anything else.
 */
export async function listNodes(
  channel: GuestChannel,
  { places, where }: NodesRequest,
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
    // The guest is of an older version, in memory since it was paused. What it cannot list was never in a snapshot.
    if (isSandboxError(error, "file_error") && error.details["errno"] === "ENOSYS") return [];
    throw error;
  } finally {
    await fed.catch(() => undefined);
  }
  return list.nodes;
}

/**
 * Asks the guest itself, which takes a tenth of the time of a tool. The request is sent at once. Resolves to undefined
 * if the guest cannot do it, because there is too much to search or it is of an older version.
 */
export async function listFewNodes(
  channel: GuestChannel,
  { places, where }: NodesRequest,
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
  { at, nodes, how }: NodesToMake,
  signal: AbortSignal,
): Promise<void> {
  if (nodes.length === 0) return;
  const tool = await ToolRun.start(channel, ["mknodes", at, how], { user: root, cwd: "/", stdin: true, signal });
  tool.readStderr();
  await feed(tool, Buffer.concat(nodes)).catch(() => undefined);
  await tool.finish(`make pipes and sockets in ${at}`);
}

async function feed(tool: ToolRun, bytes: Buffer): Promise<void> {
  if (await tool.feed(bytes)) await tool.process.closeStdin();
}

/** Collects what a tool lists. */
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
        suggestion: "Remove those that are not used.",
        details: { nodes: this.nodes.length },
      });
    }
    this.nodes.push(asNode(record));
  }
}

/**
 * The sandbox is not trusted: what is kept in a manifest, and made again elsewhere, must be a pipe or a socket below
 * the root.
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
  if (!isSafe || name.length > maxNameBytes || name.includes("\0")) throw new MalformedPayload("Not a file name");
  // Pipes and sockets have no link target.
  if (reader.u32() !== 0) throw new MalformedPayload("A pipe or a socket with a target");
  reader.end();
}
