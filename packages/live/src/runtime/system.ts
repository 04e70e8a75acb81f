import { isDeepStrictEqual } from "node:util";
import type { ChildSpec, ExitReason, StartableService, SupervisorDefinition, SupervisorRef } from "../app/service.ts";
import { decode } from "../wire/encode.ts";
import type { FromRuntime, ServiceSnapshot } from "../wire/protocol.ts";
import { migratedState } from "./migrate.ts";
import type { ModuleRegistry, Namespace } from "./registry.ts";
import { RuntimeFailure } from "./runtime-failure.ts";
import {
  checkedState,
  isService,
  type AnyService,
  type Location,
  type Restored,
  type ServiceProcess,
  type ServiceSystem,
} from "./service-process.ts";
import { describe, isSupervisor, SupervisorProcess } from "./supervisor-process.ts";

/** Messages that the runtime sends by itself. */
export type Emit = (message: Exclude<FromRuntime, { t: "hello" | "reply" | "error" }>) => void;

/** All services and supervisors of the app, by name. */
export class System implements ServiceSystem {
  readonly registry: ModuleRegistry;
  readonly emit: Emit;
  readonly #services = new Map<string, ServiceProcess>();
  readonly #byId = new Map<number, ServiceProcess>();
  readonly #supervisors = new Map<string, SupervisorProcess>();
  readonly #restarts = new Map<string, number>();
  #restored = new Map<string, ServiceSnapshot>();
  #root: SupervisorProcess | undefined;

  constructor(registry: ModuleRegistry, emit: Emit) {
    this.registry = registry;
    this.emit = emit;
  }

  get root(): SupervisorProcess | undefined {
    return this.#root;
  }

  /** Starts the supervision tree of the entry module. */
  async start(entry: string, snapshots: readonly ServiceSnapshot[]): Promise<void> {
    this.restoreAtStart(snapshots);
    const root = new SupervisorProcess(this, "root", "", this.rootDefinition(entry));
    this.#root = root;
    this.addSupervisor(root);
    root.onEnd((reason) => {
      this.#root = undefined;
      this.emit({ t: "ended", reason: describe(reason) });
    });
    try {
      await root.start();
    } finally {
      this.#restored.clear();
    }
  }

  rootDefinition(entry: string): SupervisorDefinition {
    const definition = this.registry.exports(entry)?.["default"];
    if (isSupervisor(definition)) return definition;
    throw new RuntimeFailure("start_failed", `Cannot start the app: the default export of ${entry} is no supervisor`);
  }

  services(): ServiceProcess[] {
    return [...this.#services.values()];
  }

  find(name: string): ServiceProcess | undefined {
    return this.#services.get(name);
  }

  findById(id: number): ServiceProcess | undefined {
    return this.#byId.get(id);
  }

  supervisor(name: string): SupervisorRef {
    const found = this.#supervisors.get(name);
    if (found === undefined) throw new RuntimeFailure("not_found", `There is no supervisor ${name}`);
    return found.ref;
  }

  restarts(name: string): number {
    return this.#restarts.get(name) ?? 0;
  }

  addService(service: ServiceProcess): void {
    this.#services.set(service.name, service);
    this.#byId.set(service.id, service);
  }

  removeService(service: ServiceProcess): void {
    if (this.#services.get(service.name) === service) this.#services.delete(service.name);
    this.#byId.delete(service.id);
  }

  addSupervisor(supervisor: SupervisorProcess): void {
    this.#supervisors.set(supervisor.name, supervisor);
  }

  removeSupervisor(supervisor: SupervisorProcess): void {
    if (this.#supervisors.get(supervisor.name) === supervisor) this.#supervisors.delete(supervisor.name);
  }

  /** The current code of a service. */
  definition(location: Location): AnyService {
    const definition = this.registry.exports(location.module)?.[location.export];
    if (isService(definition)) return definition;
    throw new RuntimeFailure("not_found", `${location.module} has no service ${location.export}`);
  }

  /** Finds which module exports a definition, so that its later versions are found, too. */
  locate(definition: StartableService, name: string, staged: ReadonlyMap<string, Namespace> = new Map()): Location {
    for (const module of new Set([...staged.keys(), ...this.registry.modules()])) {
      for (const [key, value] of Object.entries(staged.get(module) ?? this.registry.exports(module) ?? {})) {
        if (value === definition) return { module, export: key };
      }
    }
    throw new RuntimeFailure("start_failed", `Cannot start ${name}: no module exports its service`);
  }

  /** Compares where two specs get their code and arguments from: the objects of two versions are never identical. */
  isSameStart(name: string, before: ChildSpec, after: ChildSpec, staged?: ReadonlyMap<string, Namespace>): boolean {
    const [oldCode, oldArgument] = before.start;
    const [newCode, newArgument] = after.start;
    if (isSupervisor(oldCode) || isSupervisor(newCode)) return isSupervisor(oldCode) && isSupervisor(newCode);
    const service = this.#services.get(name);
    if (service === undefined) return oldCode === newCode && isDeepStrictEqual(oldArgument, newArgument);
    return (
      isDeepStrictEqual(service.location, this.locate(newCode, name, staged)) &&
      isDeepStrictEqual(oldArgument, newArgument)
    );
  }

  /** Services of these names begin with these states and messages when they are started next. */
  restoreAtStart(snapshots: readonly ServiceSnapshot[]): void {
    this.#restored = new Map(snapshots.map((snapshot) => [snapshot.name, snapshot]));
  }

  /** The snapshot that a service begins with after a restart of the process, once. */
  takeRestored(name: string, location: Location): Restored | undefined {
    const snapshot = this.#restored.get(name);
    if (snapshot === undefined || snapshot.module !== location.module) return undefined;
    this.#restored.delete(name);
    const definition = this.definition(location);
    const state = migratedState(
      definition,
      { state: decode(snapshot.state) as object, version: snapshot.version },
      undefined,
    );
    return {
      state: checkedState(state),
      version: definition.version ?? 1,
      mailbox: snapshot.mailbox.map((message) => decode(message) as Restored["mailbox"][number]),
    };
  }

  reportCrash(name: string, reason: ExitReason): void {
    const restarts = this.restarts(name) + 1;
    this.#restarts.set(name, restarts);
    const stack = reason.kind === "error" ? reason.stack : undefined;
    this.emit({
      t: "crash",
      service: name,
      reason: describe(reason),
      restarts,
      ...(stack === undefined ? {} : { stack }),
    });
  }

  log(service: string, parts: readonly unknown[]): void {
    this.emit({
      t: "log",
      service,
      level: "log",
      text: parts.map((part) => (typeof part === "string" ? part : JSON.stringify(part))).join(" "),
    });
  }

  warn(service: string, text: string): void {
    this.emit({ t: "log", service, level: "warn", text });
  }
}
