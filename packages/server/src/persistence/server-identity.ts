import { createHash, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { isSameDirectory, type DirectoryMark } from "@atoll/engine";
import { writeDurably } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

const name = z.string().regex(/^[\w-]{1,100}$/);
/** The number of former ids that are kept. It is small, because a directory is rarely copied. */
const maxFormerIds = 16;

/** The schema keeps fields of later versions. */
const Identity = z.looseObject({
  id: name,
  /** A hash of the machine's id: a data directory that was copied to another machine belongs to another server. */
  machine: z.string(),
  /**
   * The identity of the directory, because one that was copied on this machine or restored belongs to another server,
   * too. Earlier versions did not write it.
   */
  directory: z.object({ inode: z.string(), bornNs: z.string().optional() }).optional(),
  /** The ids of the servers whose data directory this is a copy of, or was: the last first. */
  formerly: z.array(name).optional(),
  /** The identity of the store with the metadata of its sandboxes. */
  metadataStore: name.optional(),
});
type Identity = z.infer<typeof Identity>;

/** The file `server.json`: what the server of a data directory has to remember over restarts. */
export class ServerIdentity {
  readonly #path: string;
  #known: Identity;

  private constructor(path: string, known: Identity) {
    this.#path = path;
    this.#known = known;
  }

  /**
   * Loads the identity. The caller has the lock of the data directory, and `mark` identifies it. Rejects when the file
   * cannot be read: with another id, the server would not recognize its sandboxes.
   */
  static async load(dataDir: string, { inode, bornNs }: DirectoryMark): Promise<ServerIdentity> {
    const path = join(dataDir, "server.json");
    const found = await readIdentity(path);
    const machine = await thisMachine();
    const directory = { inode, ...(bornNs === undefined ? {} : { bornNs }) };
    const known = found === undefined ? { id: newName(), machine, directory } : identityFor(found, machine, directory);
    const identity = new ServerIdentity(path, known);
    if (!isDeepStrictEqual(known, found)) await identity.#save();
    return identity;
  }

  /** The id under which it holds leases. It stays, so that a server recognizes its own leases. */
  get id(): string {
    return this.#known.id;
  }

  /**
   * Reports whether this data directory belonged to that server when it was copied. It may still be the only one: moved
   * to another disk, or restored.
   */
  wasId(id: string): boolean {
    return this.#known.formerly?.includes(id) ?? false;
  }

  /** The identity of the metadata store, or undefined if none was used so far. */
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

/** Returns the same identity for the same directory, and a new one for a copy of it. */
function identityFor(found: Identity, machine: string, directory: NonNullable<Identity["directory"]>): Identity {
  const isSame =
    found.machine === machine && (found.directory === undefined || isSameDirectory(found.directory, directory));
  if (isSame) return { ...found, directory: { ...found.directory, ...directory } };
  const formerly = [found.id, ...(found.formerly ?? [])].slice(0, maxFormerIds);
  return { ...found, id: newName(), machine, directory, formerly };
}

async function readIdentity(path: string): Promise<Identity | undefined> {
  try {
    return Identity.parse(JSON.parse(await readFile(path, "utf8")));
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return undefined;
    throw new SandboxError("storage_failed", `Cannot start: ${path} cannot be read`, {
      suggestion:
        "Restore it. If it is lost, remove it: this server then gets another id, and drops its unstored data of " +
        "persistent sandboxes.",
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
 * Returns a name for the lock of this data directory, under this boot of the kernel: while its holder lives, no other
 * process anywhere holds a lock of this name, also not on a copy.
 */
export async function nameOfLock({ device, inode }: DirectoryMark): Promise<string> {
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8");
  return shortHash(`${boot.trim()} ${device} ${inode}`, 12);
}

function shortHash(text: string, digits: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, digits);
}
