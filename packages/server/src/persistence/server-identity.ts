import { createHash, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { isSameDirectory, type DirectoryMark } from "@atoll/engine";
import { writeDurably } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

const name = z.string().regex(/^[\w-]{1,100}$/);
/** A directory is copied now and then, not all the time. */
const mostFormerNames = 16;

/** What a later version has written besides stays. */
const Identity = z.looseObject({
  id: name,
  /** A hash: a data directory that was copied to another machine belongs to another server. */
  machine: z.string(),
  /**
   * And so does one that was copied on this machine, or restored. Absent: written by a version that did not tell them
   * apart.
   */
  directory: z.object({ inode: z.string(), bornNs: z.string().optional() }).optional(),
  /** Names of the servers whose data directory this is a copy of, or was: the last first. */
  formerly: z.array(name).optional(),
  /** In which one the metadata of its sandboxes are. */
  metadataStore: name.optional(),
});
type Identity = z.infer<typeof Identity>;

/** `server.json`: what a data directory's server must not forget over restarts. */
export class ServerIdentity {
  readonly #path: string;
  #known: Identity;

  private constructor(path: string, known: Identity) {
    this.#path = path;
    this.#known = known;
  }

  /**
   * For whoever has the lock of the data directory; `mark` tells which one it is. Rejects when what stands there cannot
   * be read: under another name it would not know its sandboxes again.
   */
  static async load(dataDir: string, { inode, bornNs }: DirectoryMark): Promise<ServerIdentity> {
    const path = join(dataDir, "server.json");
    const found = await readIdentity(path);
    const machine = await thisMachine();
    const directory = { inode, ...(bornNs === undefined ? {} : { bornNs }) };
    const known = found === undefined ? { id: newName(), machine, directory } : settle(found, machine, directory);
    const identity = new ServerIdentity(path, known);
    if (!isDeepStrictEqual(known, found)) await identity.#save();
    return identity;
  }

  /** Under which name it holds leases. It stays, so that a server finds its own again. */
  get id(): string {
    return this.#known.id;
  }

  /**
   * Whether this data directory was that server's when it was copied. Perhaps it still is all that there is of it:
   * moved to another disk, or restored.
   */
  wasNamed(id: string): boolean {
    return this.#known.formerly?.includes(id) ?? false;
  }

  /** By its own name; undefined: it never had one. */
  get metadataStore(): string | undefined {
    return this.#known.metadataStore;
  }

  async rememberMetadataStore(id: string): Promise<void> {
    if (id === this.#known.metadataStore) return;
    this.#known = { ...this.#known, metadataStore: id };
    await this.#save();
  }

  async #save(): Promise<void> {
    await writeDurably(this.#path, JSON.stringify(this.#known));
  }
}

/** The same server in the same directory, or a new one in a copy of it. */
function settle(found: Identity, machine: string, directory: NonNullable<Identity["directory"]>): Identity {
  const isSame =
    found.machine === machine && (found.directory === undefined || isSameDirectory(found.directory, directory));
  if (isSame) return { ...found, directory: { ...found.directory, ...directory } };
  const formerly = [found.id, ...(found.formerly ?? [])].slice(0, mostFormerNames);
  return { ...found, id: newName(), machine, directory, formerly };
}

async function readIdentity(path: string): Promise<Identity | undefined> {
  try {
    return Identity.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new SandboxError("storage_failed", `Cannot start: ${path} cannot be read`, {
      suggestion:
        "Restore it. If it is lost, remove it: this server then has another name, and what it has of persistent sandboxes and did not store is dropped.",
      details: { path },
      cause,
    });
  }
}

function newName(): string {
  return `srv-${randomBytes(9).toString("base64url")}`;
}

async function thisMachine(): Promise<string> {
  const id = (await readFile("/etc/machine-id", "utf8").catch(() => "")).trim();
  return shortHash(`atoll ${id}`, 32);
}

/**
 * Names the lock of this data directory, under this run of the kernel: as long as its holder lives, nobody else
 * anywhere holds one of this name, also not on a copy.
 */
export async function nameOfLock({ device, inode }: DirectoryMark): Promise<string> {
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
  return shortHash(`${boot.trim()} ${device} ${inode}`, 12);
}

function shortHash(text: string, digits: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, digits);
}
