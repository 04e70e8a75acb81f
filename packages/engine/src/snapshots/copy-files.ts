import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { assertAccepts, firstToAbort, isSandboxError, type SandboxRecord } from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { currentCheckpoint } from "../checkpoints/current-checkpoint.ts";
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
  /** This has `<tree>/upper` for each tree of the template. */
  dir: string;
  /** How long the sandbox was frozen. */
  frozenMs: number;
}

/**
 * Copies what a sandbox wrote over its template, as of one moment, into one layer below `scratch`. A running sandbox is
 * frozen while its own layer is copied; those below it do not change. The pipes and sockets that are only in memory can
 * be listed while it runs but not while it is frozen: those count that existed before and after the freeze, unchanged.
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
  const flat = new LayerFlattener(context, template, scratch, signal);
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

/**
 * If the guest is silent the list is empty: the files of a sandbox that cannot be reached are worth saving all the
 * more.
 */
async function unlessSilent(list: () => Promise<Nodes>): Promise<Nodes> {
  try {
    return await list();
  } catch (error) {
    if (isSandboxError(error, "guest_silent")) return [];
    throw error;
  }
}

/**
 * Returns what the checkpoint that a sandbox depends on, or its beginning, has: the layers, the topmost first, and the
 * pipes and sockets that were in memory.
 */
async function readSaved(
  context: EngineContext,
  life: SandboxLife,
  record: SandboxRecord,
  signal: AbortSignal,
): Promise<{ layers: Layer[]; nodes: Nodes }> {
  const n = currentCheckpoint(record);
  const { layout } = life.parts;
  const { layers, nodes } =
    n === undefined
      ? { layers: await readFirstLayers(layout), nodes: [] }
      : record.state === "running"
        ? await new CheckpointStore(layout).read(n)
        : await verifyCheckpoint(context, life, n, { memory: false, signal });
  return {
    layers: layers.map(({ id }) => life.parts.template.trees.map((_, tree) => context.layers.upper(id, tree))),
    // It is unknown which of them a failed sandbox still had.
    nodes: record.state === "failed" ? [] : nodesOf({ nodes }),
  };
}

/** Makes one layer of a stack, from the top down. Whiteouts that hide nothing of the templates are left out. */
export class LayerFlattener {
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

  /** Makes the directories that `begin` needs. It is separate because `begin` runs while the sandbox is frozen. */
  async prepare(): Promise<void> {
    await mkdir(this.#nothing, { mode: 0o700 });
    await this.#makeRoom();
  }

  /** `below` is the layers under it, the topmost first, without the template's. */
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
