import { assertAccepts, SandboxError, type SandboxInfo, type SnapshotInfo, type SnapshotName } from "@atoll/protocol";
import { packTar, unpackTar } from "./mock-archive.ts";
import { MockFiles } from "./mock-files.ts";

interface Snapshot {
  info: SnapshotInfo;
  archive: Uint8Array;
}

/** The namespace of the one key that the mock starts with. */
const namespace = "admin/";
const mark = "atoll-snapshot mock ";

/** Snapshots in memory. Only this mock can read their files. */
export class MockSnapshots {
  readonly #snapshots = new Map<string, Snapshot>();

  take(name: SnapshotName, sandbox: SandboxInfo, files: MockFiles): SnapshotInfo {
    assertAccepts(sandbox, "take a snapshot of");
    const { template, id: sandboxId } = sandbox;
    return this.#add(name, packTar(files.entriesBelow("/")), { template, sandboxId });
  }

  list(): SnapshotInfo[] {
    const all = [...this.#snapshots.values()].map(({ info }) => info);
    return all.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  share(name: string, shared: boolean): SnapshotInfo {
    const snapshot = this.#find(name);
    snapshot.info = { ...snapshot.info, shared };
    return snapshot.info;
  }

  get(name: string): SnapshotInfo {
    return this.#find(name).info;
  }

  /** Returns the files that a sandbox from this snapshot starts with. */
  files(name: string): MockFiles {
    const files = new MockFiles();
    files.put("/", unpackTar(this.#find(name).archive));
    return files;
  }

  remove(name: string): SnapshotInfo {
    const { info } = this.#find(name);
    this.#snapshots.delete(info.name);
    return info;
  }

  export(name: string): Uint8Array {
    const { info, archive } = this.#find(name);
    const head = new TextEncoder().encode(`${mark}${JSON.stringify(info)}\n`);
    const file = new Uint8Array(head.length + archive.length);
    file.set(head);
    file.set(archive, head.length);
    return file;
  }

  import(name: SnapshotName, file: Uint8Array): SnapshotInfo {
    const end = file.indexOf(0x0a);
    const head = new TextDecoder().decode(file.subarray(0, Math.max(0, end)));
    if (!head.startsWith(mark)) {
      throw new SandboxError("invalid_argument", "Cannot import this as a snapshot: it does not start like one");
    }
    const { template, sandboxId } = JSON.parse(head.slice(mark.length)) as SnapshotInfo;
    const archive = file.slice(end + 1);
    unpackTar(archive);
    return this.#add(name, archive, { template, sandboxId });
  }

  #add(name: SnapshotName, archive: Uint8Array, of: { template: string; sandboxId: string }): SnapshotInfo {
    if (this.#snapshots.has(name)) {
      throw new SandboxError("already_exists", `Cannot make snapshot ${name}: one with this name exists`);
    }
    const { template, sandboxId } = of as Pick<SnapshotInfo, "template" | "sandboxId">;
    const sizes = { sizeBytes: archive.length, storedBytes: archive.length };
    const info = {
      name,
      ref: `${namespace}${name}`,
      shared: false,
      template,
      createdAtMs: Date.now(),
      owner: "mock",
      sandboxId,
      ...sizes,
      sha256: "0".repeat(64),
    };
    this.#snapshots.set(name, { info, archive });
    return info;
  }

  #find(name: string): Snapshot {
    const snapshot = this.#snapshots.get(name.startsWith(namespace) ? name.slice(namespace.length) : name);
    if (snapshot === undefined) throw new SandboxError("not_found", `Cannot find snapshot ${name}`);
    return snapshot;
  }
}
