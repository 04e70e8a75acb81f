import type { Artifact } from "../compiler/artifact.ts";
import type { LiveEventBody, ReloadPhase } from "../events/live-event.ts";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { Connection } from "../wire/connection.ts";
import { encode } from "../wire/encode.ts";
import type { ServiceSnapshot } from "../wire/protocol.ts";
import type { AppConfig, ReloadResult } from "./app-options.ts";

/** The runtime keeps a limit itself. The host waits this much longer before it gives up on an answer. */
const graceMs = 2_000;
const loadTimeoutMs = 30_000;

interface Change {
  number: number;
  /** All modules of the new generation. */
  modules: ReadonlyMap<string, Artifact>;
  /** The modules whose code differs, and those that are gone. */
  names: readonly string[];
  removed: string[];
  extra: unknown;
}

interface Swapped {
  services: string[];
  /** The states of the affected services before the swap. */
  snapshots: ServiceSnapshot[];
  phases: Omit<ReloadResult["phases"], "compile">;
}

/** One swap of code in a running app, step by step. When a step fails, `phase` says which, and nothing has changed. */
export class CodeSwap {
  phase: ReloadPhase = "prepare";
  /** The states of the affected services before the swap, as soon as they are known. */
  captured: readonly ServiceSnapshot[] = [];
  readonly #connection: Connection;
  readonly #config: AppConfig;
  readonly #emit: (event: LiveEventBody) => void;

  constructor(connection: Connection, config: AppConfig, emit: (event: LiveEventBody) => void) {
    this.#connection = connection;
    this.#config = config;
    this.#emit = emit;
  }

  async run({ number, modules, names, removed, extra }: Change): Promise<Swapped> {
    const startedAt = performance.now();
    const evaluate = new ModuleGraph(modules.values()).reloadOrder(names);
    const artifacts = evaluate.flatMap((module) => modules.get(module) ?? []);
    await this.#connection.request("prepare", { generation: number, artifacts, evaluate, removed }, loadTimeoutMs);
    const preparedAt = performance.now();
    const prepare = preparedAt - startedAt;
    this.#emit({ type: "reload.prepare", generation: number, modules: evaluate, durationMs: prepare });

    this.phase = "suspend";
    const { suspendTimeoutMs, migrateTimeoutMs, migration } = this.#config;
    const capture = { generation: number, suspendTimeoutMs };
    const { snapshots } = await this.#connection.request("capture", capture, suspendTimeoutMs + graceMs);
    this.captured = snapshots;
    const capturedAt = performance.now();
    const suspend = capturedAt - preparedAt;
    const services = snapshots.map(({ name }) => name);
    this.#emit({ type: "reload.suspend", generation: number, services, durationMs: suspend });

    this.phase = "commit";
    const { migrated } = await this.#connection.request(
      "commit",
      {
        generation: number,
        extra: encode(extra),
        migrateTimeoutMs,
        ...(migration === undefined ? {} : { migration }),
      },
      migrateTimeoutMs * Math.max(1, services.length) + loadTimeoutMs,
    );
    const commit = performance.now() - capturedAt;
    this.#emit({ type: "reload.commit", generation: number, migrated, durationMs: commit });
    return { services, snapshots, phases: { prepare, suspend, commit } };
  }
}

/** The modules whose code differs, and those that are gone. */
export function changesBetween(before: Change["modules"], after: Change["modules"]) {
  const changed = [...after.values()].filter(({ module, codeSha256 }) => before.get(module)?.codeSha256 !== codeSha256);
  return {
    names: changed.map(({ module }) => module),
    removed: [...before.keys()].filter((module) => !after.has(module)),
  };
}

/** The result of a reload that had nothing to swap. */
export function unswapped(
  result: ReloadResult["result"],
  generation: number,
  modules: string[],
  compileMs: number,
  startedAt: number,
): ReloadResult {
  const phases = { compile: compileMs, prepare: 0, suspend: 0, commit: 0 };
  return { result, generation, modules, services: [], durationMs: performance.now() - startedAt, phases };
}
