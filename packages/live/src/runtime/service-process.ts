import {
  serviceMark,
  type Context,
  type ExitReason,
  type Ref,
  type ServiceDefinition,
  type SupervisorRef,
  type Timer,
} from "../app/service.ts";
import { guarded, within } from "./guard.ts";
import { KeptThings } from "./kept-things.ts";
import { RuntimeFailure } from "./runtime-failure.ts";

/** Where the code of a service is found, in whatever version is current. */
export interface Location {
  module: string;
  export: string;
}

export type AnyService = ServiceDefinition;

export type Fault = { kind: "crash" } | { kind: "delay"; ms: number };

/** What a service goes on from after a restart of the process. */
export interface Restored {
  state: object;
  version: number | string;
  mailbox: { name: string; argument: unknown }[];
}

interface Message {
  kind: "call" | "cast";
  name: string;
  argument: unknown;
  /** Both are set for calls. */
  resolve?: (value: unknown) => void;
  reject?: (error: unknown) => void;
}

/** What a service needs of the app around it. */
export interface ServiceSystem {
  definition(location: Location): AnyService;
  find(name: string): ServiceProcess | undefined;
  findById(id: number): ServiceProcess | undefined;
  supervisor(name: string): SupervisorRef;
  log(service: string, parts: readonly unknown[]): void;
  warn(service: string, text: string): void;
}

const maxMailbox = 10_000;
/** The limit of the part up to the first `await`, during which nothing else can run. */
const initTurnMs = 5_000;
/** The limit of all of `init`, and of all of `open`. */
const initMs = 20_000;
const defaultCallTimeoutMs = 5_000;

/** Thrown by a handler to refuse a request: the caller gets the message, and the service goes on. */
const refusalName = "Refusal";

let lastId = 0;

/** A running service: its state, its mailbox and what it owns. Handlers are looked up at every message. */
export class ServiceProcess {
  readonly id = ++lastId;
  readonly name: string;
  readonly location: Location;
  readonly argument: unknown;
  state: object = {};
  version: number | string = 1;
  status: "starting" | "running" | "suspended" | "stopping" | "ended" = "starting";
  messages = 0;
  readonly ref: Ref;
  readonly #system: ServiceSystem;
  #mailbox: Message[] = [];
  #busy = false;
  readonly #idle: (() => void)[] = [];
  #exiting: ExitReason | undefined;
  /** How much later the next message is handled, for tests. */
  #delayMs = 0;
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #kept = new KeptThings();
  readonly #endListeners = new Set<(reason: ExitReason) => void>();
  #context: Context | undefined;

  constructor(system: ServiceSystem, name: string, location: Location, argument: unknown) {
    this.#system = system;
    this.name = name;
    this.location = location;
    this.argument = argument;
    this.ref = {
      id: this.id,
      name,
      call: (handler, ...given) => this.call(handler, given[0], this.context.callTimeoutMs),
      cast: (handler, ...given) => this.cast(handler, given[0]),
    };
  }

  get mailboxLength(): number {
    return this.#mailbox.length;
  }

  get context(): Context {
    this.#context ??= this.#newContext();
    return this.#context;
  }

  /** Makes the state by `init`, or takes a restored one, and begins with the messages that wait. */
  async start(restored?: Restored): Promise<void> {
    const definition = this.#system.definition(this.location);
    if (restored === undefined) {
      const made = guarded(() => definition.init(this.argument, this.context), initTurnMs);
      this.state = checkedState(await within(made, initMs, "init"));
      this.version = definition.version ?? 1;
    } else {
      this.state = restored.state;
      this.version = restored.version;
      for (const { name, argument } of restored.mailbox) this.#mailbox.push({ kind: "cast", name, argument });
    }
    await within(
      guarded(() => definition.open?.(this.state, this.context), initTurnMs),
      initMs,
      "open",
    );
    if (this.status === "starting") this.status = "running";
    this.#pump();
  }

  call(name: string, argument: unknown, timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new RuntimeFailure("timed_out", `Cannot call ${name} of ${this.name}: no answer in ${timeoutMs} ms`));
      }, timeoutMs);
      const settle =
        <V>(then: (value: V) => void) =>
        (value: V): void => {
          clearTimeout(timer);
          then(value);
        };
      this.#post({ kind: "call", name, argument, resolve: settle(resolve), reject: settle(reject) });
    });
  }

  cast(name: string, argument: unknown): void {
    this.#post({ kind: "cast", name, argument });
  }

  /** The casts that wait. Calls are left out: their callers get an error when the process ends, and may try again. */
  waitingCasts(): { name: string; argument: unknown }[] {
    return this.#mailbox.flatMap(({ kind, name, argument }) => (kind === "cast" ? [{ name, argument }] : []));
  }

  /** Fails on purpose: ends as after an error in a handler, or handles its next message late. */
  inject(fault: Fault): void {
    if (fault.kind === "delay") {
      this.#delayMs = fault.ms;
      return;
    }
    const reason = errorReason(new Error("a crash that was injected"));
    this.#exiting ??= reason;
    if (!this.#busy) void this.stop(reason, initTurnMs);
  }

  /** Resolves between two messages, after which none is handled until `resume`. */
  async suspend(timeoutMs: number): Promise<void> {
    if (this.status === "running") this.status = "suspended";
    if (!this.#busy) return;
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new RuntimeFailure("suspend_timeout", `${this.name} did not finish its message within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#idle.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  resume(): void {
    if (this.status !== "suspended") return;
    this.status = "running";
    this.#pump();
  }

  /** Calls the listener once, when the service has ended. */
  onEnd(listener: (reason: ExitReason) => void): () => void {
    this.#endListeners.add(listener);
    return () => void this.#endListeners.delete(listener);
  }

  /** Ends the service after the message in hand. Resolves when it has ended. */
  async stop(reason: ExitReason, shutdownMs: number): Promise<void> {
    if (this.status === "ended") return;
    const ended = new Promise<void>((resolve) => this.onEnd(() => resolve()));
    this.#exiting ??= reason;
    if (this.status !== "stopping") {
      this.status = "stopping";
      const timer = setTimeout(() => void this.#end(reason, false), shutdownMs);
      ended.then(
        () => clearTimeout(timer),
        () => undefined,
      );
      if (!this.#busy) void this.#end(reason, reason.kind !== "killed");
    }
    await ended;
  }

  #post(message: Message): void {
    const problem = this.#refusal(message);
    if (problem !== undefined) {
      if (message.reject === undefined) this.#system.warn(this.name, problem.message);
      else message.reject(problem);
      return;
    }
    try {
      // A copy, so that sender and receiver share nothing.
      this.#mailbox.push({ ...message, argument: copy(message.argument) });
    } catch (error) {
      const failure = new RuntimeFailure(
        "uncloneable_state",
        `Cannot send ${message.name} to ${this.name}: ${messageOf(error)}`,
      );
      if (message.reject === undefined) throw failure;
      message.reject(failure);
      return;
    }
    this.#pump();
  }

  #refusal(message: Message): RuntimeFailure | undefined {
    if (this.status === "ended" || this.status === "stopping") {
      return new RuntimeFailure("not_found", `Cannot send ${message.name} to ${this.name}: it has ended`);
    }
    if (this.#mailbox.length < maxMailbox) return undefined;
    return new RuntimeFailure(
      "mailbox_full",
      `Cannot send ${message.name} to ${this.name}: ${maxMailbox} messages wait`,
    );
  }

  #pump(): void {
    if (this.#busy || this.status !== "running") return;
    const message = this.#mailbox.shift();
    if (message === undefined) return;
    this.#busy = true;
    void this.#handle(message).finally(() => {
      this.#busy = false;
      for (const resolve of this.#idle.splice(0)) resolve();
      if (this.#exiting !== undefined) void this.#end(this.#exiting, true);
      else this.#pump();
    });
  }

  async #handle(message: Message): Promise<void> {
    this.messages += 1;
    try {
      const definition = this.#system.definition(this.location);
      const handlers: Readonly<Record<string, (...parameters: never[]) => unknown>> =
        (message.kind === "call" ? definition.call : definition.cast) ?? {};
      const handler = Object.hasOwn(handlers, message.name) ? handlers[message.name] : undefined;
      if (handler === undefined) {
        // A monitor's `down` and casts that a new version no longer has are no reason to end.
        const failure = new RuntimeFailure("not_found", `${this.name} has no ${message.kind} ${message.name}`);
        if (message.reject === undefined) this.#system.warn(this.name, failure.message);
        else message.reject(failure);
        return;
      }
      if (this.#delayMs > 0) await this.#delay();
      const call = handler as (state: object, argument: unknown, context: Context) => unknown;
      const reply = await call(this.state, message.argument, this.context);
      message.resolve?.(copy(reply));
    } catch (error) {
      message.reject?.(new RuntimeFailure("handler_failed", messageOf(error), { cause: error }));
      if ((error as { name?: string } | undefined)?.name === refusalName) return;
      this.#exiting ??= errorReason(error);
      if (this.status === "running" || this.status === "suspended") this.status = "stopping";
    }
  }

  #delay(): Promise<void> {
    const ms = this.#delayMs;
    this.#delayMs = 0;
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  async #end(reason: ExitReason, terminate: boolean): Promise<void> {
    if (this.status === "ended") return;
    const pending = this.#mailbox.splice(0);
    if (terminate && reason.kind !== "killed") {
      this.status = "stopping";
      try {
        const definition = this.#system.definition(this.location);
        await guarded(() => definition.terminate?.(reason, this.state, this.context), initTurnMs);
      } catch (error) {
        this.#system.warn(this.name, `terminate failed: ${messageOf(error)}`);
      }
    }
    if ((this.status as string) === "ended") return;
    this.status = "ended";
    for (const timer of this.#timers) clearTimeout(timer);
    for (const { name, reject } of pending) {
      reject?.(new RuntimeFailure("not_found", `Cannot answer ${name}: ${this.name} has ended`));
    }
    await this.#kept.disposeAll((error) =>
      this.#system.warn(this.name, `Cannot dispose of what it kept: ${messageOf(error)}`),
    );
    const listeners = [...this.#endListeners];
    this.#endListeners.clear();
    for (const listener of listeners) listener(reason);
  }

  #newContext(): Context {
    return {
      self: this.ref,
      callTimeoutMs: defaultCallTimeoutMs,
      service: (name) => this.#namedRef(name),
      after: (ms, cast, argument) => this.#timer(ms, false, cast, argument),
      every: (ms, cast, argument) => this.#timer(ms, true, cast, argument),
      link: (other) => this.#link(other),
      monitor: (other) => this.#monitor(other),
      keep: (name, make, dispose) => this.#kept.keep(name, make, dispose),
      exit: (reason = { kind: "normal" }) => {
        this.#exiting ??= reason;
        if (!this.#busy) void this.stop(reason, initTurnMs);
      },
      supervisor: (name) => this.#system.supervisor(name),
      log: (...parts) => this.#system.log(this.name, parts),
    };
  }

  #namedRef(name: string): Ref {
    const find = (): ServiceProcess => {
      const found = this.#system.find(name);
      if (found === undefined) throw new RuntimeFailure("not_found", `There is no service ${name}`);
      return found;
    };
    return {
      get id() {
        return find().id;
      },
      name,
      call: async (handler, ...given) => find().call(handler, given[0], this.context.callTimeoutMs),
      cast: (handler, ...given) => this.#system.find(name)?.cast(handler, given[0]),
    };
  }

  #timer(ms: number, repeats: boolean, cast: string, argument: unknown): Timer {
    const fire = (): void => {
      if (!repeats) this.#timers.delete(timer);
      this.cast(cast, argument);
    };
    const timer = repeats ? setInterval(fire, ms) : setTimeout(fire, ms);
    this.#timers.add(timer);
    return {
      cancel: () => {
        clearTimeout(timer);
        this.#timers.delete(timer);
      },
    };
  }

  #link(other: Ref): void {
    const target = this.#system.findById(other.id);
    if (target === undefined) return;
    const follow = (follower: ServiceProcess) => (reason: ExitReason) => {
      if (reason.kind === "error" || reason.kind === "killed") void follower.stop(reason, initTurnMs);
    };
    target.onEnd(follow(this));
    this.onEnd(follow(target));
  }

  #monitor(other: Ref): Timer {
    const { id, name } = other;
    const target = this.#system.findById(id);
    const report = (reason: ExitReason): void => this.cast("down", { id, name, reason });
    if (target === undefined) {
      report({ kind: "normal" });
      return { cancel: () => undefined };
    }
    return { cancel: target.onEnd(report) };
  }
}

export const isService = (value: unknown): value is AnyService =>
  typeof value === "object" && value !== null && (value as { [serviceMark]?: boolean })[serviceMark] === true;

const copy = (value: unknown): unknown =>
  typeof value === "object" && value !== null ? structuredClone(value) : refuseFunctions(value);

function refuseFunctions(value: unknown): unknown {
  if (typeof value === "function" || typeof value === "symbol")
    throw new TypeError(`a ${typeof value} cannot be copied`);
  return value;
}

export function checkedState(state: unknown): object {
  if (typeof state === "object" && state !== null) return state;
  throw new TypeError(`a state is an object, not ${state === null ? "null" : typeof state}`);
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export const errorReason = (error: unknown): ExitReason => ({
  kind: "error",
  message: messageOf(error),
  ...(error instanceof Error && error.stack !== undefined ? { stack: error.stack } : {}),
});
