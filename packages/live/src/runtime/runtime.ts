import { setFlagsFromString } from "node:v8";
import { Script } from "node:vm";
import * as app from "../app/index.ts";
import { decode, encode } from "../wire/encode.ts";
import type { FromRuntime, Params, Reply, RequestName, RuntimeError } from "../wire/protocol.ts";
import { guarded } from "./guard.ts";
import { ImportGuard } from "./import-guard.ts";
import { ModuleRegistry } from "./registry.ts";
import { RuntimeFailure } from "./runtime-failure.ts";
import { messageOf, type ServiceProcess } from "./service-process.ts";
import { snapshotOf, Swap } from "./swap.ts";
import { System, type Emit } from "./system.ts";

type Handlers = { [N in RequestName]: (params: Params<N>) => Promise<Reply<N>> | Reply<N> };

/** Answers the requests of the host. */
export class Runtime {
  readonly #registry: ModuleRegistry;
  readonly #system: System;
  readonly #emit: Emit;
  #swap: Swap | undefined;
  #entry = "";

  constructor(folder: string, emit: Emit) {
    this.#registry = new ModuleRegistry(folder, { "@atoll/live/app": app });
    this.#system = new System(this.#registry, emit);
    this.#emit = emit;
  }

  async answer(n: number, name: string, params: unknown): Promise<Extract<FromRuntime, { t: "reply" | "error" }>> {
    try {
      if (!Object.hasOwn(this.#handlers, name)) throw new RuntimeFailure("not_found", `There is no request ${name}`);
      const handler = this.#handlers[name as RequestName] as (params: unknown) => unknown;
      return { t: "reply", re: n, ok: await handler(params) };
    } catch (error) {
      return { t: "error", re: n, error: runtimeError(error) };
    }
  }

  readonly #handlers: Handlers = {
    load: async ({ generation, entry, artifacts, imports }) => {
      this.#entry = entry;
      if (imports !== undefined && this.#registry.imports === undefined) {
        this.#registry.imports = new ImportGuard(imports, (what, why) => this.#emit({ t: "denied", what, why }));
        this.#registry.imports.install();
      }
      const order = artifacts.map(({ module }) => module);
      try {
        this.#registry.commit(await this.#registry.stage(generation, artifacts, order, []));
      } catch (error) {
        const module = (error as { module?: string }).module ?? "the app";
        throw new RuntimeFailure("load_failed", `Cannot load ${module}: ${messageOf(error)}`, { cause: error });
      }
      this.#swap = new Swap(this.#system, entry, generation);
      return {};
    },
    start: async ({ snapshots }) => {
      await this.#system.start(this.#entry, snapshots);
      return { services: this.#system.services().length };
    },
    call: async ({ service, name, argument, timeoutMs }) => {
      const value = await this.#service(service).call(name, decode(argument), timeoutMs);
      return { value: encode(value) };
    },
    cast: ({ service, name, argument }) => {
      this.#service(service).cast(name, decode(argument));
      return {};
    },
    run: async ({ module, export: key, arguments: given, timeoutMs }) => {
      const work = this.#registry.exports(module)?.[key];
      if (typeof work !== "function") throw new RuntimeFailure("not_found", `${module} exports no function ${key}`);
      try {
        const parameters = decode(given) as unknown[];
        return {
          value: encode(await guarded(() => (work as (...all: unknown[]) => unknown)(...parameters), timeoutMs)),
        };
      } catch (error) {
        throw new RuntimeFailure("handler_failed", messageOf(error), { cause: error });
      }
    },
    prepare: (params) => this.#swapper().prepare(params),
    capture: (params) => this.#swapper().capture(params),
    commit: (params) => this.#swapper().commit({ ...params, decodedExtra: decode(params.extra) }),
    abort: () => {
      this.#swapper().abort();
      return {};
    },
    revert: () => this.#swapper().revert(),
    settle: () => {
      this.#swapper().settle();
      return {};
    },
    snapshot: async ({ timeoutMs, skipsBusy = false }) => {
      const taken = this.#system.services().map(async (service) => {
        try {
          return [await snapshotBetweenMessages(service, timeoutMs)];
        } catch (error) {
          if (skipsBusy) return [];
          throw error;
        }
      });
      return { snapshots: (await Promise.all(taken)).flat() };
    },
    fault: ({ service, fault }) => {
      this.#service(service).inject(fault);
      return {};
    },
    inspect: ({ collectGarbage: isCollected = false }) => ({
      generation: this.#swap?.generation ?? 0,
      heapBytes: isCollected ? liveHeapBytes() : process.memoryUsage().heapUsed,
      services: this.#system.services().map((service) => ({
        name: service.name,
        state: service.status === "ended" ? "stopping" : service.status,
        version: service.version,
        mailbox: service.mailboxLength,
        messages: service.messages,
        restarts: this.#system.restarts(service.name),
        module: service.location.module,
      })),
    }),
    ping: () => ({}),
    stop: async () => {
      await this.#system.root?.stop({ kind: "shutdown" });
      return {};
    },
  };

  #service(name: string): ServiceProcess {
    const found = this.#system.find(name);
    if (found !== undefined) return found;
    const names = this.#system.services().map((service) => service.name);
    throw new RuntimeFailure("not_found", `There is no service ${name}; there are: ${names.join(", ") || "none"}`);
  }

  #swapper(): Swap {
    if (this.#swap === undefined) throw new RuntimeFailure("unknown_generation", "Nothing has been loaded yet");
    return this.#swap;
  }
}

/** What is in use after a full collection. The function for that exists only with a flag, which can be set late. */
function liveHeapBytes(): number {
  setFlagsFromString("--expose-gc");
  (new Script("gc").runInNewContext() as () => void)();
  return process.memoryUsage().heapUsed;
}

async function snapshotBetweenMessages(service: ServiceProcess, timeoutMs: number) {
  const wasSuspended = service.status === "suspended";
  try {
    await service.suspend(timeoutMs);
    return snapshotOf(service);
  } finally {
    if (!wasSuspended) service.resume();
  }
}

function runtimeError(error: unknown): RuntimeError {
  const stack = stackOf(error);
  const known = error instanceof RuntimeFailure ? error : undefined;
  return {
    code: isDenied(error) ? "permission_denied" : (known?.code ?? "handler_failed"),
    message: messageOf(error),
    ...(stack === undefined ? {} : { stack }),
    ...(known?.service === undefined ? {} : { service: known.service }),
  };
}

/** Also in a thread of the module loader, where the class is another one. */
function isDenied(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return (error as { code?: unknown }).code === "permission_denied" || isDenied(error.cause);
}

/** The stack of the app's own error, where one caused this. */
function stackOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  return error.cause instanceof Error ? error.cause.stack : error.stack;
}
