import { createHash, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/engine";
import { z } from "zod";

const name = z.string().regex(/^[\w-]{1,100}$/);

const Identity = z.strictObject({
  id: name,
  /** A hash: a data directory that was copied to another machine belongs to another server. */
  machine: z.string(),
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

  static async load(dataDir: string): Promise<ServerIdentity> {
    const path = join(dataDir, "server.json");
    const machine = await thisMachine();
    const found = await readFile(path, "utf8")
      .then((text) => Identity.parse(JSON.parse(text)))
      .catch(() => undefined);
    if (found?.machine === machine) return new ServerIdentity(path, found);
    const id = `srv-${randomBytes(9).toString("base64url")}`;
    const identity = new ServerIdentity(path, { ...found, id, machine });
    await identity.#save();
    return identity;
  }

  /** Under which name it holds leases. It stays, so that a server finds its own again. */
  get id(): string {
    return this.#known.id;
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

async function thisMachine(): Promise<string> {
  return shortHash(`atoll ${await readMachineId()}`, 32);
}

/**
 * Which run of its kernel this is, for a machine that has a name; undefined for one that has none: there a copied data directory is not known as such, and two servers may have the same name under one
 * kernel.
 */
export async function thisBoot(): Promise<string | undefined> {
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => "");
  return (await readMachineId()) === "" || boot.trim() === "" ? undefined : shortHash(boot.trim(), 12);
}

async function readMachineId(): Promise<string> {
  return (await readFile("/etc/machine-id", "utf8").catch(() => "")).trim();
}

function shortHash(text: string, digits: number): string {
  return createHash("sha256").update(text).digest("hex").slice(0, digits);
}
