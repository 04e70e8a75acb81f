import type { SnapshotInfo } from "@atoll/protocol";
import type { ByteSource } from "./http/exchange.ts";
import type { Http } from "./http/http.ts";
import { unhurried } from "./sandbox-options.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/**
 * The snapshots of the server: `atoll.snapshots`. `sandbox.snapshot(name)` takes one, `Sandbox.create({ snapshot })`
 * uses one. Names are the key's own; another key's snapshot that it may see is meant by its `ref`,
 * `<namespace>/<name>`.
 */
export class Snapshots {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * All that the key may see, by name.
   *
   * @example
   * await sandbox.snapshot("listed");
   * console.log((await atoll.snapshots.list()).some(({ name }) => name === "listed")); // true
   */
  async list(options: SignalOption = {}): Promise<SnapshotInfo[]> {
    return (await this.#http.call("listSnapshots", options)).snapshots;
  }

  /**
   * What there is to know of one.
   *
   * @example
   * await sandbox.snapshot("looked-at");
   * console.log((await atoll.snapshots.get("looked-at")).sandboxId === sandbox.id); // true
   */
  async get(name: string, options: SignalOption = {}): Promise<SnapshotInfo> {
    return this.#http.call("getSnapshot", { params: { name }, ...options });
  }

  /**
   * Lets every key start sandboxes from it, by its `ref`.
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
   * Keeps one from other keys again. Sandboxes that they made of it keep their files.
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
   * Removes one. Sandboxes that were made of it keep their files.
   *
   * @example
   * await sandbox.snapshot("short-lived");
   * await atoll.snapshots.remove("short-lived");
   */
  async remove(name: string, options: SignalOption = {}): Promise<void> {
    await this.#http.call("removeSnapshot", { params: { name }, ...options });
  }

  /**
   * One as a file, for this server or another to import.
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
   * Makes one of an exported file. Nothing is there before all of it was checked.
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
