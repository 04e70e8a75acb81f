import { chooseExpired, type DatedManifest } from "../../src/collection/choose-expired.ts";
import { collectGarbage } from "../../src/collection/collect-garbage.ts";
import { retireManifest } from "../../src/collection/retired-manifests.ts";
import type { CallOptions, ObjectInfo, ObjectVersion } from "../../src/index.ts";
import { MemoryObjectStore } from "./memory-object-store.ts";

export const graceMs = 100;

/** One action of a server or a collector. Its numbers choose among what exists at that moment. */
export type Action =
  | { kind: "begin"; line: number; from: number; share: number; tookMs: number }
  | { kind: "retire"; keepLast: number }
  | { kind: "abandon"; from: number }
  | { kind: "wait"; ms: number };

interface Publication {
  manifest: DatedManifest;
  dueAtMs: number;
}

class CollectorDied extends Error {}

/**
 * Servers that publish, share and retire manifests while collectors look and remove, on a simulated clock. Before each
 * call of a collector to the store, another server acts.
 */
export class CollectionWorld extends MemoryObjectStore {
  readonly seen = { published: 0, shared: 0, removed: 0, retired: 0, deaths: 0 };
  nowMs = 1_000;
  readonly #actions: Action[];
  readonly #underWay: Publication[] = [];
  #made = 0;
  #calls = 0;
  #isCollecting = false;
  #removalsLeft = Number.POSITIVE_INFINITY;

  constructor(actions: readonly Action[]) {
    super();
    this.#actions = [...actions];
  }

  get hasActions(): boolean {
    return this.#actions.length > 0 || this.#underWay.length > 0;
  }

  /** The collector dies if it has to remove more objects than this. */
  async collect(maxRemovals: number): Promise<void> {
    this.#isCollecting = true;
    this.#removalsLeft = maxRemovals;
    try {
      const removed = await collectGarbage(this, {
        prefixes: ["data/"],
        isManifest: (key) => key.endsWith("/manifest.json"),
        isPart: (key) => !key.endsWith("/manifest.json"),
        readNeeds: (_key, data) => (JSON.parse(data.toString()) as DatedManifest).needs,
        retiredPrefix: "collection/retired/",
        condemnedKey: "collection/condemned.json",
        nowMs: this.nowMs,
        graceMs,
      });
      this.seen.removed += removed.length;
    } catch (error) {
      if (!(error instanceof CollectorDied)) throw error;
      this.seen.deaths += 1;
    } finally {
      this.#isCollecting = false;
    }
  }

  /** Another server takes the next action. */
  async go(): Promise<void> {
    const action = this.#actions.shift() ?? { kind: "wait", ms: graceMs };
    switch (action.kind) {
      case "begin":
        await this.#begin(action);
        break;
      case "retire":
        await this.#retire(action.keepLast);
        break;
      case "abandon":
        await super.put(`data/left-${this.#made++}`, Buffer.from("never named"));
        break;
      case "wait":
        await this.#wait(action.ms);
    }
    await this.#assertWhole();
  }

  async manifests(): Promise<DatedManifest[]> {
    const all: DatedManifest[] = [];
    for await (const { key } of super.list("data/")) {
      const got = key.endsWith("/manifest.json") ? await super.get(key) : undefined;
      if (got !== undefined) all.push(JSON.parse(got.data.toString()) as DatedManifest);
    }
    return all;
  }

  /** Every object that is neither a manifest nor a note of the collector. */
  async parts(): Promise<string[]> {
    const keys: string[] = [];
    for await (const { key } of super.list("data/")) if (!key.endsWith("/manifest.json")) keys.push(key);
    return keys;
  }

  override async *list(prefix: string, options?: CallOptions): AsyncIterable<ObjectInfo> {
    await this.#interrupt();
    for await (const info of super.list(prefix, options)) {
      yield info;
    }
  }

  override async get(key: string, options?: CallOptions): ReturnType<MemoryObjectStore["get"]> {
    await this.#interrupt();
    return super.get(key, options);
  }

  override async remove(key: string, options?: CallOptions & { if?: ObjectVersion }): Promise<boolean> {
    if (this.#isCollecting && key.startsWith("data/")) {
      await this.#interrupt();
      if (this.#removalsLeft === 0) throw new CollectorDied();
      this.#removalsLeft -= 1;
    }
    return super.remove(key, options);
  }

  async #interrupt(): Promise<void> {
    if (!this.#isCollecting || !this.hasActions) return;
    this.#calls += 1;
    // The others act only at every fourth call, so that collections sometimes reach their end.
    if (this.#calls % 4 !== 0) return;
    this.#isCollecting = false;
    await this.go();
    this.#isCollecting = true;
  }

  /** Reads a manifest, decides to need some of what it needs, uploads a new object, and publishes a while later. */
  async #begin({ line, from, share, tookMs }: Extract<Action, { kind: "begin" }>): Promise<void> {
    const there = await this.manifests();
    const shared = there[from % Math.max(1, there.length)]?.needs.slice(0, share) ?? [];
    const n = this.#made++;
    await super.put(`data/part-${n}`, Buffer.from("new"));
    const manifest: DatedManifest = {
      key: `data/${n}/manifest.json`,
      line: `line-${line}`,
      createdAtMs: this.nowMs,
      needs: [`data/part-${n}`, ...shared],
    };
    this.seen.shared += shared.length;
    this.#underWay.push({ manifest, dueAtMs: this.nowMs + tookMs });
  }

  async #retire(keepLast: number): Promise<void> {
    for (const expired of chooseExpired(await this.manifests(), { keepLast }, this.nowMs)) {
      const version = (await this.stat(expired.key))?.version;
      if (version === undefined) continue;
      const manifest = { ...expired, version };
      await retireManifest(this, manifest, { retiredPrefix: "collection/retired/", nowMs: this.nowMs });
      this.seen.retired += 1;
    }
  }

  async #wait(ms: number): Promise<void> {
    this.nowMs += ms;
    for (const publication of this.#underWay.filter(({ dueAtMs }) => dueAtMs <= this.nowMs)) {
      this.#underWay.splice(this.#underWay.indexOf(publication), 1);
      const { manifest } = publication;
      await super.put(manifest.key, Buffer.from(JSON.stringify(manifest)));
      this.seen.published += 1;
    }
  }

  async #assertWhole(): Promise<void> {
    const parts = new Set(await this.parts());
    for (const { key, needs } of await this.manifests()) {
      const missing = needs.filter((need) => !parts.has(need));
      if (missing.length > 0) throw new Error(`${key} needs ${missing.join()}, which was collected`);
    }
  }
}
