import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { setMaxListeners } from "node:events";
import { readFile } from "node:fs/promises";
import { writeDurably } from "@atoll/host";
import { AccessPolicy, KeyInfo, keyPolicy, SandboxError, type CreateKey, type KeyCreated } from "@atoll/protocol";
import { z } from "zod";
import { storageError } from "../support/storage-error.ts";

/** A key as it is stored. Older servers stored no policy, but a number of sandboxes beside the other fields. */
const StoredKey = KeyInfo.extend({
  hash: z.string().regex(/^[0-9a-f]{64}$/),
  policy: AccessPolicy.optional(),
  maxSandboxes: z.int().optional(),
}).transform(({ policy, maxSandboxes, ...key }) => {
  const limits = maxSandboxes === undefined ? {} : { sandboxes: maxSandboxes };
  return { ...key, policy: keyPolicy(key.verbs, policy ?? { limits }) };
});
type StoredKey = z.output<typeof StoredKey>;
const KeyFile = z.strictObject({ version: z.literal(1), keys: z.array(StoredKey) });

/** The hash that an unknown id is compared with, so that the comparison takes as long as for a known id. */
const unknownKeyHash = hashSecret("");

const secretForm = /^atk_([a-z0-9]{12})_([A-Za-z0-9_-]{43})$/;

/**
 * The API keys of one data directory. A secret is returned once, when its key is created; the file has only its hash.
 */
export class KeyStore {
  /** Set when this start created the first key. It is the only time at which the secret can be shown. */
  readonly firstSecret: string | undefined;
  #path: string;
  #keys: Map<string, StoredKey>;
  /** Keys that are revoked though the file may still have them: the next attempt to store removes them there. */
  #refused = new Set<string>();
  #revocations = new Map<string, AbortController>();
  /** Serializes writes. Each stores the state at the time when it begins. */
  #writing: Promise<void> = Promise.resolve();

  private constructor(path: string, keys: Map<string, StoredKey>, firstSecret: string | undefined) {
    this.#path = path;
    this.#keys = keys;
    this.firstSecret = firstSecret;
  }

  static async open(path: string): Promise<KeyStore> {
    const keys = await readKeys(path);
    if (keys !== undefined) return new KeyStore(path, keys, undefined);
    const first = newKey({ name: "admin", verbs: ["admin"], ownOnly: false, policy: { limits: {} } });
    const store = new KeyStore(path, new Map([[first.stored.id, first.stored]]), first.secret);
    await store.#save();
    return store;
  }

  /** Creates a key. It is valid from when it is stored; when that fails, no client has its secret. */
  async create(request: CreateKey): Promise<KeyCreated> {
    const { stored, secret } = newKey(request);
    await this.#save(stored).catch((error: unknown) => {
      throw storageError(error, "create a key");
    });
    return { key: withoutHash(stored), secret };
  }

  list(): KeyInfo[] {
    return [...this.#keys.values()].map(withoutHash);
  }

  /**
   * Revokes a key. It is refused at once, and listed until the change is stored; when storing fails, the caller can try
   * again. The last admin key cannot be revoked: without it no client could ever create another.
   */
  async revoke(id: string): Promise<void> {
    const key = this.#keys.get(id);
    if (key === undefined) throw new SandboxError("not_found", `Cannot revoke key ${id}: there is no such key`);
    const others = [...this.#keys.values()].filter((other) => other.id !== id && !this.#refused.has(other.id));
    if (!others.some(({ verbs }) => verbs.includes("admin"))) {
      throw new SandboxError("invalid_state", `Cannot revoke key ${id}: it is the last one with the verb admin`, {
        suggestion: "Create another admin key first.",
      });
    }
    this.#refused.add(id);
    this.#revocations.get(id)?.abort(revoked());
    this.#revocations.delete(id);
    await this.#save().catch((error: unknown) => {
      throw storageError(error, `store that key ${id} is revoked`);
    });
  }

  /** Returns the key of this secret, if it is valid. The time it takes does not show which part was wrong. */
  verify(secret: string): KeyInfo | undefined {
    const [, id = ""] = secretForm.exec(secret) ?? [];
    const key = this.#valid(id);
    if (!matchesHash(secret, key?.hash ?? unknownKeyHash) || key === undefined) return undefined;
    key.lastUsedAtMs = Date.now();
    return withoutHash(key);
  }

  /**
   * Returns a signal that aborts when the key is revoked, with the error for its clients. Streams, which outlive a
   * single request, end then.
   */
  untilRevoked(id: string): AbortSignal {
    if (this.#valid(id) === undefined) return AbortSignal.abort(revoked());
    const revocation = this.#revocations.get(id) ?? new AbortController();
    // Every stream and every request of the key listens to it.
    setMaxListeners(0, revocation.signal);
    this.#revocations.set(id, revocation);
    return revocation.signal;
  }

  /** Stores when keys were last used, which is not worth a write at each use. */
  async close(): Promise<void> {
    await this.#save();
  }

  #valid(id: string): StoredKey | undefined {
    return this.#refused.has(id) ? undefined : this.#keys.get(id);
  }

  async #save(added?: StoredKey): Promise<void> {
    const write = async (): Promise<void> => {
      const gone = [...this.#refused];
      const keys = [...this.#keys.values(), ...(added === undefined ? [] : [added])].filter(
        ({ id }) => !gone.includes(id),
      );
      await writeDurably(this.#path, `${JSON.stringify({ version: 1, keys }, null, 2)}\n`);
      if (added !== undefined) this.#keys.set(added.id, added);
      for (const id of gone) {
        this.#keys.delete(id);
        this.#refused.delete(id);
      }
    };
    this.#writing = this.#writing.then(write, write);
    await this.#writing;
  }
}

async function readKeys(path: string): Promise<Map<string, StoredKey> | undefined> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  const { keys } = KeyFile.parse(JSON.parse(text));
  return new Map(keys.map((key) => [key.id, key]));
}

function newKey(request: CreateKey): { stored: StoredKey; secret: string } {
  const id = randomBytes(6).toString("hex");
  const secret = `atk_${id}_${newSecret()}`;
  const { name, verbs, templates, ownOnly, policy, requestsPerMinute } = request;
  const stored: StoredKey = {
    id,
    name,
    verbs,
    ownOnly,
    policy: keyPolicy(verbs, policy),
    ...(templates === undefined ? {} : { templates }),
    ...(requestsPerMinute === undefined ? {} : { requestsPerMinute }),
    createdAtMs: Date.now(),
    hash: hashSecret(secret),
  };
  return { stored, secret };
}

function revoked(): SandboxError {
  return new SandboxError("permission_denied", "Cannot go on: this API key was revoked", {
    suggestion: "An admin key can create another one.",
  });
}

function withoutHash(stored: StoredKey): KeyInfo {
  const { hash: _, ...key } = stored;
  return key;
}

/** Returns 256 random bits as text. No dictionary can guess them, so it is safe to store a plain hash. */
function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

/** Compares in a time that does not depend on where the two differ. */
function matchesHash(secret: string, hash: string): boolean {
  return timingSafeEqual(Buffer.from(hashSecret(secret), "hex"), Buffer.from(hash, "hex"));
}
