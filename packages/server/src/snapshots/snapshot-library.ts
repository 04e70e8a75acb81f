import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import type { Engine, FilesSource } from "@atoll/engine";
import {
  firstToAbort,
  isSandboxError,
  SandboxError,
  type SandboxId,
  type SnapshotInfo,
  type SnapshotName,
  type TemplateName,
} from "@atoll/protocol";
import type { CallOptions, ObjectStore, ObjectVersion } from "@atoll/storage";
import type { Logger } from "pino";
import type { NewEvent } from "../events/event-journal.ts";
import { Meter, TooManyBytes } from "../persistence/checkpoint-encoding.ts";
import { jitteredInterval } from "../support/jittered-interval.ts";
import { storageError } from "../support/storage-error.ts";
import { notSnapshot, readHeader, writeHeader } from "./snapshot-file.ts";
import { infoOf, type SnapshotHeader, type SnapshotManifest } from "./snapshot-manifest.ts";
import { SnapshotStore } from "./snapshot-store.ts";
import { mayChange, mayUse, missing, placesOf, taken, type SnapshotUser } from "./snapshot-user.ts";
import { restoreFiles, shrinkFiles, type StoredFiles } from "./stored-files.ts";

/** The interval is long, because each collection lists all snapshots and reads each manifest. */
const collectIntervalMs = 6 * 60 * 60_000;

export interface SnapshotLibraryOptions {
  /** The store; undefined if the setting `snapshotStore` is `none`. */
  store: ObjectStore | undefined;
  engine: Pick<Engine, "saveFiles" | "checkFiles">;
  /** A directory for work in progress. Only this server uses it, and empties it at the start. */
  scratchDir: string;
  /** The limit for the files of one snapshot, as an archive. */
  maxBytes: number;
  emit: (event: NewEvent) => void;
  log: Logger;
}

interface Found {
  manifest: SnapshotManifest;
  version: ObjectVersion;
}

/** The snapshot that a sandbox starts from. */
export interface SnapshotSource {
  template: TemplateName;
  files: FilesSource;
}

/** The snapshots of a server: files of sandboxes under names, kept until they are removed. */
export class SnapshotLibrary {
  readonly #options: SnapshotLibraryOptions;
  readonly #inProgress = new Set<Promise<unknown>>();
  readonly #closing = new AbortController();
  #plan: { stop: () => void } | undefined;

  private constructor(options: SnapshotLibraryOptions) {
    this.#options = options;
  }

  static async open(options: SnapshotLibraryOptions): Promise<SnapshotLibrary> {
    await rm(options.scratchDir, { recursive: true, force: true });
    return new SnapshotLibrary(options);
  }

  /** Saves the files of a sandbox, which goes on. Once begun, it is completed even if the caller leaves. */
  take(id: SandboxId, name: SnapshotName, user: SnapshotUser): Promise<SnapshotInfo> {
    return this.#work("take a snapshot", async (store, scratch, signal) => {
      const { engine, maxBytes, log } = this.#options;
      await this.#assertNameFree(name, user, signal);
      const path = join(scratch, "files");
      const saved = await engine.saveFiles(id, path, { signal, maxBytes });
      const { template, base, trees, sizeBytes, sha256, frozenMs } = saved;
      const files = { trees, sizeBytes, sha256 };
      const header = { version: 1, name, template, base, sandboxId: id, createdAtMs: Date.now(), files } as const;
      const stored = await shrinkFiles({ path, ...files }, join(scratch, "stored"), signal);
      const info = this.#created(await store.publish(header, stored, { ...ownedBy(user), signal }));
      log.info({ sandboxId: id, snapshot: name, sizeBytes, storedBytes: info.storedBytes, frozenMs }, "snapshot taken");
      return info;
    });
  }

  /** Returns the snapshots that the user may use, sorted by name. */
  async list(user: SnapshotUser): Promise<SnapshotInfo[]> {
    const found: SnapshotInfo[] = [];
    for await (const manifest of this.#store("list snapshots").list({})) {
      if (mayUse(user, manifest)) found.push(infoOf(manifest));
    }
    const keyOf = ({ name, ref }: SnapshotInfo): string => `${name}/${ref}`;
    return found.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
  }

  async get(ref: string, user: SnapshotUser): Promise<SnapshotInfo> {
    return infoOf((await this.#find(ref, user)).manifest);
  }

  /** Shares a snapshot with every key, or ends that. */
  async share(ref: string, user: SnapshotUser, shared: boolean): Promise<SnapshotInfo> {
    const found = await this.#findOwn(ref, user, "change");
    return infoOf(await this.#store("share a snapshot").share(found, shared, {}));
  }

  async remove(ref: string, user: SnapshotUser): Promise<void> {
    const found = await this.#findOwn(ref, user, "remove");
    if (!(await this.#store("remove a snapshot").remove(found, {}))) throw missing(ref);
    const { name, owner } = found.manifest;
    this.#options.emit({ type: "snapshot.removed", name, owner });
  }

  /** Exports a snapshot as one file. The stream fails before its end if the store's bytes are damaged. */
  async export(
    ref: string,
    user: SnapshotUser,
    signal: AbortSignal,
  ): Promise<{ name: SnapshotName; sizeBytes: number; pieces: AsyncIterable<Buffer> }> {
    const { manifest } = await this.#find(ref, user);
    const { owner: _owner, key: _key, namespace: _namespace, shared: _shared, ...header } = manifest;
    const head = writeHeader(header);
    const archive = await this.#store("export a snapshot").read(manifest, { signal });
    const pieces = (async function* (): AsyncGenerator<Buffer, void, void> {
      yield head;
      yield* archive;
    })();
    return { name: manifest.name, sizeBytes: head.byteLength + manifest.stored.sizeBytes, pieces };
  }

  /** Imports an untrusted file; no part of it is used before all of it was verified. */
  import(
    name: SnapshotName,
    file: AsyncIterable<Buffer>,
    { user, signal: asked }: { user: SnapshotUser; signal: AbortSignal },
  ): Promise<SnapshotInfo> {
    return this.#work("import a snapshot", async (store, scratch, closing) => {
      using signal = firstToAbort(asked, closing);
      await this.#assertNameFree(name, user, signal);
      const { header, rest } = await readHeader(file);
      this.#assertSmallEnough(header);
      const stored = { path: join(scratch, "stored"), ...header.stored };
      await receive(rest, stored, signal);
      const restoring = restoreFiles(stored, join(scratch, "files"), { expected: header.files, signal });
      const archive = await restoring.catch(blameSender);
      const { engine, maxBytes } = this.#options;
      await engine.checkFiles({ archive, ...header.files }, { signal, maxBytes }).catch(blameSender);
      return this.#created(await store.publish({ ...header, name }, stored, { ...ownedBy(user), signal }));
    });
  }

  /** Downloads a snapshot while `work` creates a sandbox from it. */
  async use<T>(ref: string, user: SnapshotUser, work: (source: SnapshotSource) => Promise<T>): Promise<T> {
    const { manifest } = await this.#find(ref, user);
    return this.#work("use a snapshot", (store, scratch, signal) => {
      const archive = async (): Promise<string> => {
        const stored = { path: join(scratch, "stored"), ...manifest.stored };
        await store.download(manifest, stored.path, { signal });
        return restoreFiles(stored, join(scratch, "files"), { expected: manifest.files, signal });
      };
      const { template, base, files } = manifest;
      return work({ template, files: { base, ...files, archive } });
    });
  }

  /** Starts to remove, at intervals, what crashed servers have left incomplete. Failures are logged. */
  start(): void {
    if (this.#options.store === undefined) return;
    void this.#collect();
    this.#plan = jitteredInterval(collectIntervalMs, () => this.#collect());
  }

  #collect(): Promise<void> {
    const { log } = this.#options;
    const { signal } = this.#closing;
    const collecting = this.#store("collect snapshots")
      .collect({ signal, nowMs: Date.now() })
      .catch((error: unknown) => {
        if (!signal.aborted) log.warn({ err: error }, "snapshots not collected");
      })
      .finally(() => this.#inProgress.delete(collecting));
    this.#inProgress.add(collecting);
    return collecting;
  }

  /** Aborts the work in progress. */
  async close(): Promise<void> {
    this.#plan?.stop();
    this.#closing.abort(
      new SandboxError("unavailable", "Cannot finish the snapshot: the server stops", {
        suggestion: "Try again after the server has restarted.",
      }),
    );
    await Promise.allSettled(this.#inProgress);
  }

  #created(manifest: SnapshotManifest): SnapshotInfo {
    const { name, owner } = manifest;
    this.#options.emit({ type: "snapshot.created", name, owner });
    return infoOf(manifest);
  }

  /** Runs work that takes a while and needs a directory of its own. */
  async #work<T>(
    asked: string,
    work: (store: SnapshotStore, scratch: string, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const store = this.#store(asked);
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const scratch = join(this.#options.scratchDir, randomUUID());
    const working = (async () => {
      try {
        await mkdir(scratch, { recursive: true, mode: 0o700 });
        return await work(store, scratch, signal);
      } catch (error) {
        throw storageError(error, asked);
      } finally {
        await rm(scratch, { recursive: true, force: true });
      }
    })();
    this.#inProgress.add(working);
    return working.finally(() => this.#inProgress.delete(working));
  }

  async #find(ref: string, user: SnapshotUser): Promise<Found> {
    const found = await this.#look(ref, user);
    if (found === undefined || !mayUse(user, found.manifest)) throw missing(ref);
    return found;
  }

  async #findOwn(ref: string, user: SnapshotUser, asked: string): Promise<Found> {
    const found = await this.#find(ref, user);
    if (mayChange(user, found.manifest)) return found;
    throw new SandboxError("permission_denied", `Cannot ${asked} snapshot ${ref}: it is shared, and another key's`, {
      suggestion: "Ask its owner, or an admin.",
      details: { name: ref },
    });
  }

  /** Throws if the name is taken: any snapshot that the user would find under it counts. */
  async #assertNameFree(name: SnapshotName, user: SnapshotUser, signal: AbortSignal): Promise<void> {
    const found = await this.#look(name, user, { signal }).catch((error: unknown) => {
      if (!isSandboxError(error, "unrestorable")) throw error;
      // An unreadable snapshot of any owner is not replaced.
      throw taken(name);
    });
    if (found !== undefined) throw taken(name);
  }

  async #look(ref: string, user: SnapshotUser, call: CallOptions = {}): Promise<Found | undefined> {
    const store = this.#store("find a snapshot");
    for (const { place, isMeant } of placesOf(ref, user)) {
      const found = await store.find(place, call).catch((error: unknown) => {
        // An unreadable snapshot without a namespace may belong to another user.
        const isForeign = place.namespace === undefined && !user.seesAll;
        if (!isForeign || !isSandboxError(error, "unrestorable")) throw error;
      });
      if (found && isMeant(found.manifest)) return found;
    }
    return undefined;
  }

  #store(asked: string): SnapshotStore {
    const { store } = this.#options;
    if (store !== undefined) return new SnapshotStore(store);
    throw new SandboxError("unsupported", `Cannot ${asked}: this server keeps none (snapshotStore is none)`, {
      suggestion: "Start the server with the setting snapshotStore, or leave it out for one in its data directory.",
      details: { setting: "snapshotStore" },
    });
  }

  #assertSmallEnough({ files, stored }: SnapshotHeader): void {
    const { maxBytes } = this.#options;
    const sizeBytes = Math.max(files.sizeBytes, stored.sizeBytes);
    if (sizeBytes <= maxBytes) return;
    throw new SandboxError("limit_reached", `Cannot import a snapshot of ${sizeBytes} bytes`, {
      suggestion: `This server takes up to ${maxBytes} (maxSnapshotBytes).`,
      details: { sizeBytes, maxBytes, setting: "maxSnapshotBytes" },
    });
  }
}

function ownedBy({ keyId, namespace }: SnapshotUser): { owner: string; namespace: string } {
  return { owner: keyId, namespace };
}

/** Stores exactly the bytes that the header announces. */
async function receive(pieces: AsyncIterable<Buffer>, expected: StoredFiles, signal: AbortSignal): Promise<void> {
  const meter = new Meter(expected.sizeBytes);
  try {
    await pipeline(pieces, meter, createWriteStream(expected.path, { flags: "wx", mode: 0o600 }), { signal });
  } catch (error) {
    throw error instanceof TooManyBytes ? notSnapshot("it is longer than its header says", error) : error;
  }
  const { sizeBytes, sha256 } = meter.checksum;
  if (sizeBytes < expected.sizeBytes) throw notSnapshot("it is shorter than its header says");
  if (sha256 !== expected.sha256) throw notSnapshot("its bytes were changed");
}

/** Turns an error about a stored file into one about the file that the client sent. */
function blameSender(error: unknown): never {
  if (!isSandboxError(error, "unrestorable")) throw error;
  throw notSnapshot(`its files are not what its header says (${error.message})`, error);
}
