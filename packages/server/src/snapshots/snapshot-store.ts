import { createHash } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { collectGarbage, type CallOptions, type ObjectStore, type ObjectVersion } from "@atoll/storage";
import {
  condemnedKey,
  manifestKey,
  newFilesKey,
  parseFilesKey,
  parseManifestKey,
  retiredPrefix,
  snapshotPrefix,
  snapshotsPrefix,
  type SnapshotPlace,
} from "./snapshot-keys.ts";
import { SnapshotManifest, type SnapshotHeader } from "./snapshot-manifest.ts";
import { missing, taken } from "./snapshot-user.ts";
import type { StoredFiles } from "./stored-files.ts";

/** The time is longer than any upload of an archive with its manifest. */
const graceMs = 24 * 3_600_000;

/** Snapshots in an object store. Each exists completely or not at all. */
export class SnapshotStore {
  readonly #store: ObjectStore;

  constructor(store: ObjectStore) {
    this.#store = store;
  }

  /**
   * Stores a snapshot. Rejects with `already_exists`, and removes this one, when another has taken the name in the
   * meantime.
   */
  async publish(
    header: Omit<SnapshotHeader, "stored">,
    file: StoredFiles,
    { owner, namespace, signal }: { owner: string; namespace: string; signal: AbortSignal },
  ): Promise<SnapshotManifest> {
    const place = { namespace, name: header.name };
    const { path, encoding, sizeBytes, sha256 } = file;
    const key = newFilesKey(place);
    const stored = { encoding, sizeBytes, sha256 };
    const manifest: SnapshotManifest = SnapshotManifest.parse({ ...header, stored, owner, namespace, key });
    try {
      // The upload has no condition, for which some stores need all of it in one write: no other server uses this key.
      await this.#store.upload(key, path, { sizeBytes, sha256, signal });
      await this.#store.put(manifestKey(place), Buffer.from(JSON.stringify(manifest)), { if: "absent", signal });
    } catch (error) {
      // After any other error the manifest may have been written, and need the archive.
      if (isSandboxError(error, "conflict")) await this.#store.remove(key);
      throw isSandboxError(error, "conflict") ? taken(place.name) : error;
    }
    return manifest;
  }

  /** Changes who may use the snapshot. Rejects with `conflict` when it was changed or removed since it was found. */
  async share(
    { manifest, version }: { manifest: SnapshotManifest; version: ObjectVersion },
    shared: boolean,
    call: CallOptions,
  ): Promise<SnapshotManifest> {
    const changed = { ...manifest, shared };
    await this.#store.put(manifestKey(manifest), Buffer.from(JSON.stringify(changed)), { ...call, if: version });
    return changed;
  }

  async find(
    place: SnapshotPlace,
    call: CallOptions,
  ): Promise<{ manifest: SnapshotManifest; version: ObjectVersion } | undefined> {
    const got = await this.#store.get(manifestKey(place), call).catch((error: unknown) => {
      throw isSandboxError(error, "invalid_argument") ? unreadable(place, error) : error;
    });
    return got === undefined ? undefined : { manifest: parse(place, got.data), version: got.info.version };
  }

  /** Lists all snapshots with a readable manifest. */
  async *list(call: CallOptions): AsyncGenerator<SnapshotManifest, void, void> {
    for await (const { key } of this.#store.list(snapshotsPrefix, call)) {
      const place = parseManifestKey(key);
      if (place === undefined) continue;
      const found = await this.find(place, call).catch((error: unknown) => {
        if (!isSandboxError(error, "unrestorable")) throw error;
      });
      if (found !== undefined) yield found.manifest;
    }
  }

  /** Removes a snapshot. Returns false if another client changed or removed it before. */
  async remove(
    { manifest, version }: { manifest: SnapshotManifest; version: ObjectVersion },
    call: CallOptions,
  ): Promise<boolean> {
    try {
      await this.#store.remove(manifestKey(manifest), { ...call, if: version });
    } catch (error) {
      if (isSandboxError(error, "conflict")) return false;
      throw error;
    }
    await this.#store.remove(manifest.key, call);
    return true;
  }

  /** Downloads the archive as it is stored to a new file. Rejects with `unrestorable` when it is damaged. */
  async download(manifest: SnapshotManifest, path: string, call: CallOptions): Promise<void> {
    const { sizeBytes, sha256 } = manifest.stored;
    try {
      await this.#store.download(manifest.key, path, { ...call, sizeBytes, sha256 });
    } catch (error) {
      if (isSandboxError(error, "not_found")) throw await this.#gone(manifest, error, call);
      const isOther = isSandboxError(error, "storage_failed") && "actual" in error.details;
      throw isOther ? damaged(manifest, "its archive is not what was stored", error) : error;
    }
  }

  /** Streams the archive as it is stored. The last piece comes only after all of it was verified. */
  async read(manifest: SnapshotManifest, call: CallOptions): Promise<AsyncIterable<Buffer>> {
    const { sizeBytes } = manifest.stored;
    const found = await this.#store.stat(manifest.key, call);
    if (found === undefined) throw await this.#gone(manifest, undefined, call);
    if (found.sizeBytes !== sizeBytes) throw damaged(manifest, `its archive has ${found.sizeBytes} bytes`);
    return this.#verified(manifest, call);
  }

  async *#verified(manifest: SnapshotManifest, call: CallOptions): AsyncGenerator<Buffer, void, void> {
    const { sizeBytes, sha256 } = manifest.stored;
    const hash = createHash("sha256");
    let held: Buffer | undefined;
    for await (const piece of await this.#store.read(manifest.key, { offset: 0, length: sizeBytes }, call)) {
      hash.update(piece);
      if (held !== undefined) yield held;
      held = piece;
    }
    if (hash.digest("hex") !== sha256) throw damaged(manifest, "its archive is not what was stored");
    if (held !== undefined) yield held;
  }

  /**
   * Returns the reason why an archive is missing: the snapshot was removed since it was found, or the store has lost
   * it.
   */
  async #gone(manifest: SnapshotManifest, cause: unknown, call: CallOptions): Promise<SandboxError> {
    const isRemoved = (await this.#store.stat(manifestKey(manifest), call)) === undefined;
    return isRemoved ? missing(manifest.name) : damaged(manifest, "its archive is missing from the store", cause);
  }

  /** Removes archives that crashed servers have left without a manifest for more than a day. */
  async collect({ nowMs, ...call }: CallOptions & { nowMs: number }): Promise<void> {
    await collectGarbage(this.#store, {
      ...call,
      prefixes: [snapshotsPrefix],
      isManifest: (key) => parseManifestKey(key) !== undefined,
      isPart: (key) => parseFilesKey(key) !== undefined,
      readNeeds,
      retiredPrefix,
      condemnedKey,
      nowMs,
      graceMs,
    });
  }
}

/** Returns what a manifest needs. An unreadable one needs nothing outside of its own folder. */
function readNeeds(key: string, data: Buffer): string[] | { below: string[] } {
  const place = parseManifestKey(key);
  if (place === undefined) throw new Error(`${key} is not that of a manifest`);
  try {
    return [parse(place, data).key];
  } catch (error) {
    if (!isSandboxError(error, "unrestorable")) throw error;
    return { below: [snapshotPrefix(place)] };
  }
}

function parse(place: SnapshotPlace, data: Buffer): SnapshotManifest {
  try {
    const manifest = SnapshotManifest.parse(JSON.parse(data.toString()));
    const files = parseFilesKey(manifest.key);
    const isOf = (other: SnapshotPlace | undefined): boolean =>
      other !== undefined && snapshotPrefix(other) === snapshotPrefix(place);
    if (isOf(manifest) && isOf(files)) return manifest;
    throw new Error(`It is about ${snapshotPrefix(manifest)} in ${manifest.key}`);
  } catch (cause) {
    throw unreadable(place, cause);
  }
}

function unreadable(place: SnapshotPlace, cause: unknown): SandboxError {
  const key = manifestKey(place);
  return new SandboxError("unrestorable", `Cannot use the snapshot in ${key}: it cannot be read`, {
    suggestion: "It was written by another version, or damaged.",
    details: { key },
    cause,
  });
}

function damaged({ name, key }: SnapshotManifest, because: string, cause?: unknown): SandboxError {
  return new SandboxError("unrestorable", `Cannot use snapshot ${name}: ${because}`, {
    suggestion: "Remove it, and take or import it again.",
    details: { key, because },
    ...(cause === undefined ? {} : { cause }),
  });
}
