/**
 * What an application is written with. A service is a table of handlers beside a state; the state lives in the runtime,
 * and the handlers are looked up at every message, so that new code finds the state of the old.
 */

/**
 * A value that can be copied and sent: what `structuredClone` copies (no functions, no classes of your own) without
 * cycles. An object that is referred to twice becomes two.
 */
export type Plain = unknown;

/** Answers a call. The state may be changed in place; what is returned goes to the caller. */
export type CallHandler<S> = (state: S, argument: never, context: Context) => unknown;

/** Handles a cast or a message. The state may be changed in place; nothing is returned. */
export type Handler<S> = (state: S, argument: never, context: Context) => void | Promise<void>;

export type ExitReason =
  | { kind: "normal" }
  | { kind: "shutdown" }
  | { kind: "killed" }
  | { kind: "error"; message: string; stack?: string };

/** One field of a state, for migrations that need no code. */
export interface FieldSchema {
  type: "string" | "number" | "boolean" | "bigint" | "array" | "object" | "map" | "set" | "date" | "bytes" | "any";
  /** The value for a state that does not have the field. A field without a default must be present. */
  default?: Plain;
  optional?: boolean;
  validate?: (value: never) => boolean;
  /** Makes the value of this version from that of the version before. */
  transform?: (value: never, state: never) => Plain;
}

/** Fields that the schema does not name are kept if `keepUnknown` is set, and dropped otherwise. */
export interface StateSchema {
  fields: Readonly<Record<string, FieldSchema>>;
  keepUnknown?: boolean;
}

export interface ServiceDefinition<
  S extends object = object,
  A = unknown,
  C extends Readonly<Record<string, CallHandler<S>>> = Readonly<Record<string, CallHandler<S>>>,
  M extends Readonly<Record<string, Handler<S>>> = Readonly<Record<string, Handler<S>>>,
> {
  /** The version of the state, which a reload compares: `codeChange` gets the old one. The default is 1. */
  readonly version?: number | string;
  /** Makes the state. Until it resolves the service is not started, and its supervisor waits. */
  init(argument: A, context: Context): S | Promise<S>;
  /**
   * Opens what is not state: servers, connections, timers. Runs after `init`, and also when the process was started
   * again, where `init` is left out because the state is there.
   */
  open?(state: S, context: Context): void | Promise<void>;
  /** Requests with an answer. */
  readonly call?: C;
  /** Requests without one, from `cast`, and messages of timers, monitors and other services. */
  readonly cast?: M;
  /** Runs before the service ends, unless it is killed. */
  terminate?(reason: ExitReason, state: S, context: Context): void | Promise<void>;
  /** Makes a state of this version from one of `oldVersion`. It works on a copy; if it throws, nothing has changed. */
  codeChange?(oldVersion: number | string, state: never, extra: unknown): S;
  readonly schema?: StateSchema;
}

/** Marks what `defineService` returned, for the runtime. */
export const serviceMark = Symbol.for("atoll.live.service");
export const supervisorMark = Symbol.for("atoll.live.supervisor");

declare const noHandler: unique symbol;
/** The handlers of a service that has none. */
type NoHandlers = { readonly [noHandler]?: never };

/** Defines a service. It has to be exported by its module, since the runtime finds new code by module and export. */
export function defineService<
  S extends object,
  A,
  C extends Readonly<Record<string, CallHandler<S>>> = NoHandlers,
  M extends Readonly<Record<string, Handler<S>>> = NoHandlers,
>(
  definition: ServiceDefinition<S, A, C, M> & {
    // The intersection gives the handlers the type of the state, which is inferred from `init`.
    readonly call?: C & Readonly<Record<string, CallHandler<S>>>;
    readonly cast?: M & Readonly<Record<string, Handler<S>>>;
  },
): ServiceDefinition<S, A, C, M> {
  return Object.assign(definition, { [serviceMark]: true });
}

type Argument<H> = H extends (state: never, argument: infer A, context: never) => unknown ? A : never;
type Reply<H> = H extends (...parameters: never[]) => infer R ? Awaited<R> : never;
type Calls<D> = D extends { readonly call?: infer C } ? NonNullable<C> : never;
type Casts<D> = D extends { readonly cast?: infer M } ? NonNullable<M> : never;

/** Parameters of a handler as its caller gives them: none for one that takes no argument. */
type Given<H> = unknown extends Argument<H> ? [argument?: unknown] : [argument: Argument<H>];

/** A service as others address it: by name, and typed by its definition. */
export interface Ref<D = ServiceDefinition> {
  readonly id: number;
  readonly name: string | undefined;
  /**
   * Rejects if the handler throws, the service ends, or no answer comes in 5 s (`context.callTimeoutMs` changes it).
   */
  call<K extends keyof Calls<D> & string>(name: K, ...given: Given<Calls<D>[K]>): Promise<Reply<Calls<D>[K]>>;
  /** Is put into the mailbox; resolves nothing and never throws for a service that has ended. */
  cast<K extends keyof Casts<D> & string>(name: K, ...given: Given<Casts<D>[K]>): void;
}

export interface Timer {
  cancel(): void;
}

/** What a service can do beside its own work. */
export interface Context {
  readonly self: Ref;
  /** Any service, by the name in its child spec. Resolves late: the service may start again in between. */
  service<D = ServiceDefinition>(name: string): Ref<D>;
  callTimeoutMs: number;
  /** Casts to this service after a time. The timers of a service end with it, stop while it is suspended, and go on. */
  after(ms: number, cast: string, argument?: Plain): Timer;
  every(ms: number, cast: string, argument?: Plain): Timer;
  /** Ends together with the other service, whichever ends first with an error. */
  link(other: Ref): void;
  /** Is cast `down` with `{ id, name, reason }` when the other service ends. */
  monitor(other: Ref): Timer;
  /**
   * A thing that is not state: a server, a socket, a file. Made at the first call of this name and kept over reloads;
   * disposed of when the service ends, by `dispose` or by the thing's own `Symbol.asyncDispose`, `close` or `end`.
   */
  keep<T extends object>(name: string, make: () => T | Promise<T>, dispose?: (thing: T) => unknown): Promise<T>;
  /** Ends this service after the message in hand. */
  exit(reason?: ExitReason): void;
  supervisor(name: string): SupervisorRef;
  log(...parts: unknown[]): void;
}

export type Restart = "permanent" | "transient" | "temporary";

/** Any service, whatever its state and its handlers. */
export interface StartableService {
  init(argument: never, context: Context): unknown;
}

export interface ChildSpec {
  id: string;
  /** A service with its argument, or a supervisor. */
  start: readonly [StartableService, unknown?] | readonly [SupervisorDefinition];
  /** `permanent` by default. */
  restart?: Restart;
  /** The time for `terminate`; after it the service is dropped. The default is 5 s. */
  shutdownMs?: number;
}

export interface SupervisorDefinition {
  /** `one-for-one` by default. */
  strategy?: "one-for-one" | "one-for-all" | "rest-for-one";
  /** More restarts than `maxRestarts` (3) within `withinMs` (5,000) end the supervisor itself. */
  maxRestarts?: number;
  withinMs?: number;
  children: readonly ChildSpec[];
}

export function defineSupervisor(definition: SupervisorDefinition): SupervisorDefinition {
  return Object.assign(definition, { [supervisorMark]: true });
}

export interface SupervisorRef {
  startChild(spec: ChildSpec): Promise<Ref>;
  terminateChild(id: string): Promise<void>;
  children(): { id: string; name: string; state: string }[];
}
