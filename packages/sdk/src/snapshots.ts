import type { SnapshotInfo } from "@atoll/protocol";
import type { ByteSource } from "./http/exchange.ts";
import type { Http } from "./http/http.ts";
import { unhurried } from "./sandbox-options.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/**
 * The snapshots of the server: `atoll.snapshots`. `sandbox.snapshot(name)` takes one, `Sandbox.create({ snapshot })`
 * uses one. Names are the key's own; a snapshot of another key that it may see is named by its `ref`,
 * `<namespace>/<name>`.
 */
export class Snapshots {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Lists all snapshots that the key may see, by name.
   *
   * @example
   * await sandbox.snapshot("listed");
   * console.log((await atoll.snapshots.list()).some(({ name }) => name === "listed")); // true
   */
  async list(options: SignalOption = {}): Promise<SnapshotInfo[]> {
    return (await this.#http.call("listSnapshots", options)).snapshots;
  }

  /**
   * Returns what is known about one snapshot.
   *
   * @example
   * await sandbox.snapshot("looked-at");
   * console.log((await atoll.snapshots.get("looked-at")).sandboxId === sandbox.id); // true
   */
  async get(name: string, options: SignalOption = {}): Promise<SnapshotInfo> {
    return this.#http.call("getSnapshot", { params: { name }, ...options });
  }

  /**
   * Lets every key start sandboxes from the snapshot, by its `ref`.
   *
   * @example
   * await sandbox.snapshot("for-all");
   * const { ref } = await atoll.snapshots.share("for-all");
   * console.log(ref); // admin/for-all
   */
  async share(name: string, options: SignalOption = {}): Promise<SnapshotInfo> {
    return this.#http.call("updateSnapshot", { params: { name }, body: { shared: true }, ...options });
  }

  /**
   * Stops sharing the snapshot with other keys. Sandboxes that they started from it keep their files.
   *
   * @example
   * await sandbox.snapshot("for-a-while");
   * await atoll.snapshots.share("for-a-while");
   * console.log((await atoll.snapshots.unshare("for-a-while")).shared); // false
   */
  async unshare(name: string, options: SignalOption = {}): Promise<SnapshotInfo> {
    return this.#http.call("updateSnapshot", { params: { name }, body: { shared: false }, ...options });
  }

  /**
   * Removes a snapshot. Sandboxes that were started from it keep their files.
   *
   * @example
   * await sandbox.snapshot("short-lived");
   * await atoll.snapshots.remove("short-lived");
   */
  async remove(name: string, options: SignalOption = {}): Promise<void> {
    await this.#http.call("removeSnapshot", { params: { name }, ...options });
  }

  /**
   * Returns a snapshot as a file, for this server or another to import.
   *
   * @example
   * await sandbox.snapshot("exported");
   * const file = await new Response(await atoll.snapshots.export("exported")).blob();
   * console.log(file.size > 0); // true
   */
  async export(name: string, options: SignalOption = {}): Promise<ReadableStream<Uint8Array>> {
    return this.#http.stream("exportSnapshot", { params: { name }, ...unhurried, ...options });
  }

  /**
   * Makes a snapshot from an exported file. It appears only when all of the file was checked.
   *
   * @example
   * await sandbox.snapshot("original");
   * const { name } = await atoll.snapshots.import("copy", await atoll.snapshots.export("original"));
   * console.log(name); // copy
   */
  async import(name: string, file: ByteSource, options: SignalOption = {}): Promise<SnapshotInfo> {
    return this.#http.call("importSnapshot", { params: { name }, bytes: file, timeoutMs: undefined, ...options });
  }
}
