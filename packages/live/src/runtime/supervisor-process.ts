import {
  supervisorMark,
  type ChildSpec,
  type ExitReason,
  type Ref,
  type SupervisorDefinition,
  type SupervisorRef,
} from "../app/service.ts";
import { RuntimeFailure } from "./runtime-failure.ts";
import { errorReason, isService, messageOf, ServiceProcess } from "./service-process.ts";
import type { System } from "./system.ts";

const defaultShutdownMs = 5_000;
const defaults = { strategy: "one-for-one", maxRestarts: 3, withinMs: 5_000 } as const;

/** Whether a child of this name starts the same by both specs. */
export type SameStart = (name: string, before: ChildSpec, after: ChildSpec) => boolean;

interface Child {
  spec: ChildSpec;
  name: string;
  process: ServiceProcess | SupervisorProcess | undefined;
  /** Ends the watch over the process, so that an end that the supervisor asked for is not a crash. */
  unwatch: () => void;
}

/** Starts its children in order, restarts them by its strategy, and ends when they crash too often. */
export class SupervisorProcess {
  readonly name: string;
  definition: SupervisorDefinition;
  readonly ref: SupervisorRef;
  readonly #system: System;
  readonly #parent: string;
  #children: Child[] = [];
  #crashes: number[] = [];
  /** Restarts come one after the other; a crash during one waits. */
  #turn: Promise<void> = Promise.resolve();
  #stopping = false;
  readonly #endListeners = new Set<(reason: ExitReason) => void>();

  constructor(system: System, name: string, parent: string, definition: SupervisorDefinition) {
    this.#system = system;
    this.name = name;
    this.#parent = parent;
    this.definition = definition;
    this.ref = {
      startChild: async (spec) => this.startChild(spec),
      terminateChild: (id) => this.terminateChild(id),
      children: () =>
        this.#children.map(({ spec, name, process }) => ({
          id: spec.id,
          name,
          state: process instanceof ServiceProcess ? process.status : "supervisor",
        })),
    };
  }

  /** Starts all children, and ends those that were started when one cannot be. */
  async start(): Promise<void> {
    this.#children = this.definition.children.map((spec) => this.#newChild(spec));
    assertUniqueIds(this.#children.map(({ spec }) => spec));
    try {
      for (const child of this.#children) await this.#startChild(child);
    } catch (error) {
      await this.stop({ kind: "shutdown" });
      throw error;
    }
  }

  async stop(reason: ExitReason): Promise<void> {
    this.#stopping = true;
    for (const child of this.#children.toReversed()) await this.#stopChild(child);
    this.#system.removeSupervisor(this);
    const listeners = [...this.#endListeners];
    this.#endListeners.clear();
    for (const listener of listeners) listener(reason);
  }

  onEnd(listener: (reason: ExitReason) => void): () => void {
    this.#endListeners.add(listener);
    return () => void this.#endListeners.delete(listener);
  }

  async startChild(spec: ChildSpec): Promise<Ref> {
    assertUniqueIds([...this.#children.map((child) => child.spec), spec]);
    const child = this.#newChild(spec);
    this.#children.push(child);
    try {
      await this.#startChild(child);
    } catch (error) {
      this.#children = this.#children.filter((other) => other !== child);
      throw error;
    }
    if (child.process instanceof ServiceProcess) return child.process.ref;
    return { id: 0, name: child.name } as Ref;
  }

  async terminateChild(id: string): Promise<void> {
    const child = this.#children.find(({ spec }) => spec.id === id);
    if (child === undefined) throw new RuntimeFailure("not_found", `${this.name} has no child ${id}`);
    await this.#stopChild(child);
    this.#children = this.#children.filter((other) => other !== child);
  }

  /**
   * Applies a new definition child by child: a child with the same start goes on, one with another start is started
   * again, and others are stopped or started. Returns the names.
   */
  async applyDefinition(definition: SupervisorDefinition): Promise<{ started: string[]; stopped: string[] }> {
    assertUniqueIds(definition.children);
    const started: string[] = [];
    const stopped: string[] = [];
    const kept = new Map<string, Child>();
    const wanted = new Map(definition.children.map((spec) => [spec.id, spec]));
    this.definition = definition;
    for (const child of this.#children.toReversed()) {
      const spec = wanted.get(child.spec.id);
      if (spec !== undefined && this.#system.isSameStart(child.name, child.spec, spec)) {
        kept.set(spec.id, child);
        continue;
      }
      // The list always has what there is, so that going back after a failure finds the rest.
      this.#children = this.#children.filter((other) => other !== child);
      await this.#stopChild(child);
      stopped.push(child.name);
    }
    const next: Child[] = [];
    for (const spec of definition.children) {
      const known = kept.get(spec.id);
      if (known !== undefined) {
        known.spec = spec;
        next.push(known);
        const [code] = spec.start;
        if (known.process instanceof SupervisorProcess && isSupervisor(code)) {
          const inner = await known.process.applyDefinition(code);
          started.push(...inner.started);
          stopped.push(...inner.stopped);
        }
        continue;
      }
      const child = this.#newChild(spec);
      await this.#startChild(child);
      this.#children = [...this.#children, child];
      next.push(child);
      started.push(child.name);
    }
    this.#children = next;
    return { started, stopped };
  }

  /** The services that a new definition would end. `isSame` says whether two specs start the same. */
  leaving(definition: SupervisorDefinition, isSame: SameStart): ServiceProcess[] {
    const wanted = new Map(definition.children.map((spec) => [spec.id, spec]));
    return this.#children.flatMap(({ spec, name, process }) => {
      const next = wanted.get(spec.id);
      const stays = next !== undefined && isSame(name, spec, next);
      if (process instanceof ServiceProcess) return stays ? [] : [process];
      if (process === undefined) return [];
      const [code] = next?.start ?? [];
      return stays && isSupervisor(code) ? process.leaving(code, isSame) : process.services();
    });
  }

  services(): ServiceProcess[] {
    return this.#children.flatMap(({ process }) => {
      if (process === undefined) return [];
      return process instanceof ServiceProcess ? [process] : process.services();
    });
  }

  #newChild(spec: ChildSpec): Child {
    const name = this.#parent === "" ? spec.id : `${this.#parent}/${spec.id}`;
    return { spec, name, process: undefined, unwatch: () => undefined };
  }

  async #startChild(child: Child): Promise<void> {
    const [definition, argument] = child.spec.start;
    if (isSupervisor(definition)) {
      const supervisor = new SupervisorProcess(this.#system, child.name, child.name, definition);
      this.#system.addSupervisor(supervisor);
      await supervisor.start();
      child.process = supervisor;
      child.unwatch = supervisor.onEnd((reason) => this.#ended(child, reason));
      return;
    }
    if (!isService(definition)) {
      throw new RuntimeFailure("start_failed", `Cannot start ${child.name}: it is neither a service nor a supervisor`);
    }
    const location = this.#system.locate(definition, child.name);
    const service = new ServiceProcess(this.#system, child.name, location, argument);
    this.#system.addService(service);
    child.process = service;
    try {
      await service.start(this.#system.takeRestored(child.name, location));
    } catch (error) {
      child.process = undefined;
      await service.stop({ kind: "killed" }, 0);
      this.#system.removeService(service);
      throw new RuntimeFailure("start_failed", `Cannot start ${child.name}: ${messageOf(error)}`, {
        cause: error,
        service: child.name,
      });
    }
    child.unwatch = service.onEnd((reason) => {
      this.#system.removeService(service);
      this.#ended(child, reason);
    });
    this.#system.emit({ t: "started", service: child.name });
  }

  async #stopChild(child: Child): Promise<void> {
    const { process } = child;
    child.unwatch();
    child.process = undefined;
    if (process === undefined) return;
    if (process instanceof SupervisorProcess) {
      await process.stop({ kind: "shutdown" });
      return;
    }
    await process.stop({ kind: "shutdown" }, child.spec.shutdownMs ?? defaultShutdownMs);
    this.#system.removeService(process);
    this.#system.emit({ t: "stopped", service: child.name, reason: "shutdown" });
  }

  #ended(child: Child, reason: ExitReason): void {
    child.process = undefined;
    if (this.#stopping) return;
    const abnormal = reason.kind === "error" || reason.kind === "killed";
    if (abnormal) this.#system.reportCrash(child.name, reason);
    else this.#system.emit({ t: "stopped", service: child.name, reason: reason.kind });
    const restart = child.spec.restart ?? "permanent";
    if (restart === "temporary") {
      this.#children = this.#children.filter((other) => other !== child);
      return;
    }
    if (restart === "transient" && !abnormal) return;
    this.#turn = this.#turn.then(() => this.#restart(child, reason));
  }

  async #restart(child: Child, reason: ExitReason): Promise<void> {
    if (this.#stopping || child.process !== undefined || !this.#children.includes(child)) return;
    if (!this.#mayRestart()) {
      const text = `${this.name}: ${child.name} crashed too often, last with: ${describe(reason)}`;
      await this.stop({ kind: "error", message: text });
      return;
    }
    const strategy = this.definition.strategy ?? defaults.strategy;
    const at = this.#children.indexOf(child);
    const others = this.#children.filter((other, index) => {
      if (other === child || strategy === "one-for-one") return false;
      return strategy === "one-for-all" || index > at;
    });
    for (const other of others.toReversed()) await this.#stopChild(other);
    for (const each of this.#children.filter((other) => other === child || others.includes(other))) {
      try {
        await this.#startChild(each);
      } catch (error) {
        this.#ended(each, errorReason(error));
        return;
      }
    }
  }

  /** Counts this restart, and says whether there were not too many within the period. */
  #mayRestart(): boolean {
    const now = performance.now();
    const within = this.definition.withinMs ?? defaults.withinMs;
    this.#crashes = [...this.#crashes.filter((at) => now - at < within), now];
    return this.#crashes.length <= (this.definition.maxRestarts ?? defaults.maxRestarts);
  }
}

export const isSupervisor = (value: unknown): value is SupervisorDefinition =>
  typeof value === "object" && value !== null && (value as { [supervisorMark]?: boolean })[supervisorMark] === true;

export const describe = (reason: ExitReason): string => (reason.kind === "error" ? reason.message : reason.kind);

function assertUniqueIds(specs: readonly ChildSpec[]): void {
  const seen = new Set<string>();
  for (const { id } of specs) {
    if (seen.has(id)) throw new RuntimeFailure("start_failed", `Cannot start two children with the id ${id}`);
    seen.add(id);
  }
}
