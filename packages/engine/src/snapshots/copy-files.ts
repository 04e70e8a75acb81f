import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { assertAccepts, firstToAbort, isSandboxError, type SandboxRecord } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { standsOn } from "../checkpoints/dependents.ts";
import { readFirstLayers } from "../checkpoints/first-layers.ts";
import { nodesOf } from "../checkpoints/launch-source.ts";
import { mergeLayers } from "../checkpoints/merge-layers.ts";
import { verifyCheckpoint } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { Nodes } from "../guest/guest-nodes.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { removeTree } from "../store/remove-tree.ts";
import { settleAll } from "../support/settle-all.ts";
import type { Template } from "../templates/template.ts";
import { findNodesInMemory, findUnchangedNodes, placeNodes } from "./nodes-in-memory.ts";
import { whileFrozen } from "./while-frozen.ts";

/** Per tree of a template, a directory as overlayfs mounts it. */
type Layer = string[];

export interface FilesCopy {
  /** `<tree>/upper` for each tree of the template. */
  dir: string;
  /** For how long nothing ran in the sandbox. */
  frozenMs: number;
}

/**
 * Copies what a sandbox wrote over its template, all of one moment, into one layer below `scratch`. A running sandbox
 * stands still while its own layer is copied; those below it do not change. The pipes and sockets that it has in memory
 * only can be listed while it runs and not while it stands still: those count that were there before and after it,
 * unchanged.
 */
export async function copyFiles(
  context: EngineContext,
  life: SandboxLife,
  scratch: string,
  { signal: asked, killed }: { signal: AbortSignal; killed: AbortSignal },
): Promise<FilesCopy> {
  using signal = firstToAbort(asked, killed);
  const { record } = life;
  assertAccepts(record, "take a snapshot of");
  const { layout, template } = life.parts;
  const own = template.trees.map((_, tree) => layout.layer(tree).upper);
  const saved = await readSaved(context, life, record, signal);
  const [top = [], ...below] = record.state === "paused" ? saved.layers : [own, ...saved.layers];
  const flat = new Flattening(context, template, scratch, signal);
  await flat.prepare();
  let frozenMs = 0;
  let { nodes } = saved;
  if (record.state === "running") {
    const before = await unlessSilent(() => findNodesInMemory(life, record.container, signal));
    await whileFrozen(life, record.container, killed, async () => {
      const startMs = performance.now();
      await context.atStep("snapshot: frozen", record.id);
      await flat.begin(top, below);
      frozenMs = performance.now() - startMs;
    });
    await context.atStep("snapshot: copied", record.id);
    nodes = before.length === 0 ? [] : await unlessSilent(() => findUnchangedNodes(life, before, signal));
  } else await flat.begin(top, below);
  for (const [index, layer] of below.entries()) await flat.add(layer, below.slice(index + 1));
  await placeNodes(context.guestPath, { template, uppers: flat.uppers, nodes }, signal);
  return { dir: flat.dir, frozenMs };
}

/** Whoever cannot reach the inside of a sandbox any more wants its files all the more. */
async function unlessSilent(list: () => Promise<Nodes>): Promise<Nodes> {
  try {
    return await list();
  } catch (error) {
    if (isSandboxError(error, "guest_silent")) return [];
    throw error;
  }
}

/**
 * Of the checkpoint that a sandbox stands on or of what it began with: its layers, the topmost first, and the pipes and
 * sockets that were in memory.
 */
async function readSaved(
  context: EngineContext,
  life: SandboxLife,
  record: SandboxRecord,
  signal: AbortSignal,
): Promise<{ layers: Layer[]; nodes: Nodes }> {
  const n = standsOn(record);
  const { layout } = life.parts;
  const { layers, nodes } =
    n === undefined
      ? { layers: await readFirstLayers(layout), nodes: [] }
      : record.state === "running"
        ? await new CheckpointStore(layout).read(n)
        : await verifyCheckpoint(context, life, n, { memory: false, signal });
  return {
    layers: layers.map(({ id }) => life.parts.template.trees.map((_, tree) => context.layers.upper(id, tree))),
    // Which of them one that has failed still had, nobody knows.
    nodes: record.state === "failed" ? [] : nodesOf({ nodes }),
  };
}

/** Makes one layer of a stack, from the top down. What no template below has is not hidden in it. */
export class Flattening {
  readonly #context: EngineContext;
  readonly #template: Template;
  readonly #scratch: string;
  readonly #signal: AbortSignal;
  #round = 0;

  constructor(context: EngineContext, template: Template, scratch: string, signal: AbortSignal) {
    this.#context = context;
    this.#template = template;
    this.#scratch = scratch;
    this.#signal = signal;
  }

  get dir(): string {
    return join(this.#scratch, String(this.#round));
  }

  get uppers(): string[] {
    return this.#template.trees.map((_, tree) => this.#target(tree));
  }

  /** What `begin` needs. Apart from it, for those who hurry then. */
  async prepare(): Promise<void> {
    await mkdir(this.#nothing, { mode: 0o700 });
    await this.#makeRoom();
  }

  /** `below`: the layers under it, the topmost first, without the template's. */
  async begin(top: Layer, below: readonly Layer[] = []): Promise<void> {
    await this.#merge(
      top,
      top.map(() => this.#nothing),
      below,
    );
  }

  async add(lower: Layer, below: readonly Layer[]): Promise<void> {
    const before = this.dir;
    const upper = this.uppers;
    this.#round += 1;
    await this.#makeRoom();
    await this.#merge(upper, lower, below);
    await removeTree(before);
  }

  get #nothing(): string {
    return join(this.#scratch, "nothing");
  }

  #target(tree: number): string {
    return join(this.dir, String(tree), "upper");
  }

  #links(tree: number): string {
    return join(this.#scratch, `links-${this.#round}`, String(tree));
  }

  async #makeRoom(): Promise<void> {
    const needed = this.#template.trees.flatMap((_, tree) => [this.#target(tree), this.#links(tree)]);
    await Promise.all(needed.map((dir) => mkdir(dir, { recursive: true })));
  }

  async #merge(upper: Layer, lower: Layer, below: readonly Layer[]): Promise<void> {
    const merging = this.#template.trees.map(({ lower: own }, tree) => {
      const guest = tree === 0 ? [this.#context.runs.guestLayer(undefined)] : [];
      const order = {
        lower: lower[tree] ?? "",
        upper: upper[tree] ?? "",
        target: this.#target(tree),
        links: this.#links(tree),
        below: [...below.flatMap((layer) => layer[tree] ?? []), ...guest, ...own],
      };
      return mergeLayers(this.#context.guestPath, order, this.#signal);
    });
    await settleAll(merging);
  }
}
