import type { SupervisorDefinition } from "../app/service.ts";
import { encode, UncloneableValue } from "../wire/encode.ts";
import type { Params, Reply, ServiceSnapshot } from "../wire/protocol.ts";
import { migratedState, type Migration } from "./migrate.ts";
import type { Namespace, Staged, Undo } from "./registry.ts";
import { RuntimeFailure } from "./runtime-failure.ts";
import { checkedState, isService, messageOf, type ServiceProcess } from "./service-process.ts";
import { isSupervisor } from "./supervisor-process.ts";
import type { System } from "./system.ts";

interface Captured extends Saved {
  service: ServiceProcess;
}

interface Saved {
  state: object;
  version: number | string;
  /** For a service that the swap ended: it has to begin with this. */
  snapshot: ServiceSnapshot;
}

/** What is needed to go back to the generation before a commit. */
interface Committed {
  generation: number;
  undo: Undo;
  states: Map<string, Saved>;
  root: SupervisorDefinition;
}

/**
 * Swaps code and states: prepare, capture, commit; and abort, revert or settle. Until a commit nothing running has
 * seen new code, and a commit changes everything in one synchronous turn.
 */
export class Swap {
  readonly #system: System;
  readonly #entry: string;
  #staged: Staged | undefined;
  #suspended: readonly ServiceProcess[] = [];
  #captured: Captured[] = [];
  #committed: Committed | undefined;
  generation: number;

  constructor(system: System, entry: string, generation: number) {
    this.#system = system;
    this.#entry = entry;
    this.generation = generation;
  }

  async prepare({ generation, artifacts, evaluate, removed }: Params<"prepare">): Promise<Reply<"prepare">> {
    this.abort();
    try {
      this.#staged = await this.#system.registry.stage(generation, artifacts, evaluate, removed);
    } catch (error) {
      throw new RuntimeFailure("load_failed", `Cannot load ${moduleOf(error)}: ${messageOf(error)}`, { cause: error });
    }
    try {
      return { affected: this.#affected(this.#staged).map(({ name }) => name) };
    } catch (error) {
      this.abort();
      throw error;
    }
  }

  async capture({ generation, suspendTimeoutMs }: Params<"capture">): Promise<Reply<"capture">> {
    const staged = this.#expect(generation);
    const services = this.#affected(staged);
    this.#suspended = services;
    try {
      await Promise.all(services.map((service) => service.suspend(suspendTimeoutMs)));
      this.#captured = services.map((service) => capturedOf(service));
      return { snapshots: this.#captured.map(({ snapshot }) => snapshot) };
    } catch (error) {
      this.abort();
      throw error;
    }
  }

  async commit(options: Params<"commit"> & { decodedExtra: unknown }): Promise<Reply<"commit">> {
    const staged = this.#expect(options.generation);
    const before = this.#system.root?.definition;
    try {
      if (before === undefined) throw new RuntimeFailure("start_failed", "Cannot swap: the app has ended");
      const next = this.#migrateAll(staged, options);
      const root = this.#rootOf(staged);
      const undo = this.#system.registry.commit(staged);
      for (const { service, state, version } of next) Object.assign(service, { state, version });
      this.#committed = {
        generation: this.generation,
        undo,
        states: new Map(this.#captured.map(({ service, ...saved }) => [service.name, saved])),
        root: before,
      };
      this.generation = staged.generation;
      const children = await this.#applyRoot(root);
      const migrated = next.filter(({ isMigrated }) => isMigrated).map(({ service }) => service.name);
      this.#finish();
      return { migrated, ...children };
    } catch (error) {
      if (this.#committed !== undefined && this.generation === staged.generation) await this.revert();
      this.abort();
      throw error;
    }
  }

  /** Drops what was prepared; services that were suspended for it go on. */
  abort(): void {
    this.#finish();
  }

  /** Goes back to the code, the states and the supervision tree of the generation before. */
  async revert(): Promise<Reply<"revert">> {
    const committed = this.#committed;
    if (committed === undefined) throw new RuntimeFailure("unknown_generation", "There is no generation to go back to");
    this.#committed = undefined;
    const { undo, states, root } = committed;
    this.#system.registry.revert(undo);
    this.generation = committed.generation;
    const restore = (): void => {
      for (const [name, saved] of states) {
        const service = this.#system.find(name);
        if (service !== undefined)
          Object.assign(service, { state: structuredClone(saved.state), version: saved.version });
      }
    };
    restore();
    const ended = [...states].filter(([name]) => this.#system.find(name) === undefined);
    this.#system.restoreAtStart(ended.map(([, { snapshot }]) => snapshot));
    if (this.#system.root === undefined) await this.#system.start(this.#entry, []);
    else await this.#system.root.applyDefinition(root);
    this.#system.restoreAtStart([]);
    // Services that were started again in between began with their first state.
    restore();
    this.#finish();
    return { services: [...states.keys()] };
  }

  settle(): void {
    this.#committed = undefined;
  }

  #expect(generation: number): Staged {
    if (this.#staged?.generation === generation) return this.#staged;
    throw new RuntimeFailure("unknown_generation", `Generation ${generation} was not prepared`);
  }

  /**
   * Services whose own module is evaluated again, and those that the new supervision tree ends. Others find new code of
   * their helpers at the next use.
   */
  #affected(staged: Staged): ServiceProcess[] {
    const { instances, removed } = staged;
    const root = this.#rootOf(staged);
    const exportsOf = new Map([...instances].map(([module, { exports }]) => [module, exports]));
    const leaving =
      root === undefined
        ? []
        : this.#system.root?.leaving(root, (name, before, after) =>
            this.#system.isSameStart(name, before, after, exportsOf),
          );
    const all = this.#system
      .services()
      .filter(({ location }) => instances.has(location.module) || removed.includes(location.module));
    return [...new Set([...all, ...(leaving ?? [])])];
  }

  #migrateAll(
    staged: Staged,
    options: Params<"commit"> & { decodedExtra: unknown },
  ): (Omit<Captured, "snapshot"> & { isMigrated: boolean })[] {
    const exportsOf = (module: string): Namespace | undefined =>
      staged.instances.get(module)?.exports ?? this.#system.registry.exports(module);
    const migration = options.migration === undefined ? undefined : migrationOf(options.migration, exportsOf);
    return this.#captured.flatMap(({ service, state, version }) => {
      const definition = exportsOf(service.location.module)?.[service.location.export];
      // A service that is no longer defined is stopped by the new supervision tree, or the tree is refused.
      if (!isService(definition) || staged.removed.includes(service.location.module)) return [];
      try {
        const next = migratedState(
          definition,
          { state, version },
          { extra: options.decodedExtra, migration, timeoutMs: options.migrateTimeoutMs },
        );
        const newVersion = definition.version ?? 1;
        return [{ service, state: checkedState(next), version: newVersion, isMigrated: newVersion !== version }];
      } catch (error) {
        const code = error instanceof RuntimeFailure ? error.code : "migration_failed";
        throw new RuntimeFailure(code, `Cannot migrate ${service.name}: ${messageOf(error)}`, {
          cause: error,
          service: service.name,
        });
      }
    });
  }

  #rootOf(staged: Staged): SupervisorDefinition | undefined {
    const exports = staged.instances.get(this.#entry)?.exports;
    if (exports === undefined) return undefined;
    const root = exports["default"];
    if (isSupervisor(root)) return root;
    throw new RuntimeFailure("load_failed", `The default export of ${this.#entry} is no supervisor`);
  }

  async #applyRoot(root: SupervisorDefinition | undefined): Promise<{ started: string[]; stopped: string[] }> {
    if (root === undefined || this.#system.root === undefined) return { started: [], stopped: [] };
    return this.#system.root.applyDefinition(root);
  }

  #finish(): void {
    for (const service of this.#suspended) service.resume();
    this.#suspended = [];
    this.#captured = [];
    this.#staged = undefined;
  }
}

/** The state of a service between two messages, as text for the host. */
export function snapshotOf(service: ServiceProcess): ServiceSnapshot {
  try {
    return {
      name: service.name,
      module: service.location.module,
      export: service.location.export,
      version: service.version,
      state: encode(service.state),
      mailbox: service.waitingCasts().map((message) => encode(message)),
    };
  } catch (error) {
    if (!(error instanceof UncloneableValue)) throw error;
    throw new RuntimeFailure("uncloneable_state", `Cannot save the state of ${service.name}: ${error.message}`, {
      service: service.name,
    });
  }
}

function capturedOf(service: ServiceProcess): Captured {
  try {
    const { state, version } = service;
    // The snapshot comes first, since its error names the path of what cannot be copied.
    const snapshot = snapshotOf(service);
    return { service, state: structuredClone(state), version, snapshot };
  } catch (error) {
    if (error instanceof RuntimeFailure) throw error;
    throw new RuntimeFailure("uncloneable_state", `Cannot copy the state of ${service.name}: ${messageOf(error)}`, {
      service: service.name,
    });
  }
}

function migrationOf(name: string, exportsOf: (module: string) => Namespace | undefined): Migration {
  const [module = "", key = "default"] = name.split("#");
  const migration = exportsOf(module)?.[key];
  if (typeof migration === "function") return migration as Migration;
  throw new RuntimeFailure("migration_failed", `There is no migration ${name}`);
}

const moduleOf = (error: unknown): string => (error as { module?: string } | undefined)?.module ?? "the new code";
