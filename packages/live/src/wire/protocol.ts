import type { ImportRules } from "@atoll/guard";
import { z } from "zod";
import { Artifact } from "../compiler/artifact.ts";

/**
 * What the host and the runtime of an app say to each other: frames of a length and JSON, where values that JSON does
 * not have are tagged (`encode.ts`). The host trusts nothing from the other side: each message is parsed, and one that
 * is not understood ends the app with `guest_violation`.
 */
export const maxFrameBytes = 64 * 1024 * 1024;

export const ServiceVersion = z.union([z.number(), z.string()]);

/** The state of a service at the boundary between two messages. `mailbox` is what waits. */
export const ServiceSnapshot = z.object({
  name: z.string(),
  module: z.string(),
  export: z.string(),
  version: ServiceVersion,
  state: z.string(),
  mailbox: z.array(z.string()),
});
export type ServiceSnapshot = z.infer<typeof ServiceSnapshot>;

/** Requests of the host, with the type of their replies. */
export const requests = {
  /** Loads all modules of a generation and evaluates them, dependencies first. Nothing is started. */
  load: {
    params: z.object({
      generation: z.int(),
      entry: z.string(),
      artifacts: z.array(Artifact),
      /** What the app may import; everything without it. */
      imports: z.custom<ImportRules>().optional(),
    }),
    reply: z.object({}),
  },
  /** Starts the supervision tree; services with a snapshot begin with its state, migrated if the version differs. */
  start: { params: z.object({ snapshots: z.array(ServiceSnapshot) }), reply: z.object({ services: z.int() }) },
  call: {
    params: z.object({ service: z.string(), name: z.string(), argument: z.string(), timeoutMs: z.int() }),
    reply: z.object({ value: z.string() }),
  },
  cast: { params: z.object({ service: z.string(), name: z.string(), argument: z.string() }), reply: z.object({}) },
  /** Runs an exported function of a module. */
  run: {
    params: z.object({ module: z.string(), export: z.string(), arguments: z.string(), timeoutMs: z.int() }),
    reply: z.object({ value: z.string() }),
  },
  /**
   * Evaluates changed modules beside the old ones. `evaluate` is in order, dependencies first; nothing is visible yet.
   */
  prepare: {
    params: z.object({
      generation: z.int(),
      artifacts: z.array(Artifact),
      evaluate: z.array(z.string()),
      removed: z.array(z.string()),
    }),
    reply: z.object({ affected: z.array(z.string()) }),
  },
  /** Suspends the affected services at the boundary of a message and returns their states. */
  capture: {
    params: z.object({ generation: z.int(), suspendTimeoutMs: z.int() }),
    reply: z.object({ snapshots: z.array(ServiceSnapshot) }),
  },
  /** Migrates copies of the states, and swaps code and states in one turn. On failure everything is as before. */
  commit: {
    params: z.object({
      generation: z.int(),
      extra: z.string(),
      /** `module#export` of a migration function of the app, for services without `codeChange`. */
      migration: z.string().optional(),
      migrateTimeoutMs: z.int(),
    }),
    reply: z.object({ migrated: z.array(z.string()), started: z.array(z.string()), stopped: z.array(z.string()) }),
  },
  /** Drops what was prepared and resumes. */
  abort: { params: z.object({ generation: z.int() }), reply: z.object({}) },
  /** Goes back from a committed generation to the one before it, with the states of that moment. */
  revert: { params: z.object({ generation: z.int() }), reply: z.object({ services: z.array(z.string()) }) },
  /** The generation held through its probation: what `revert` needs is dropped. */
  settle: { params: z.object({ generation: z.int() }), reply: z.object({}) },
  /** Saves the states of all services. Those that are busy for longer are left out if `skipsBusy` is set. */
  snapshot: {
    params: z.object({ timeoutMs: z.int(), skipsBusy: z.boolean().optional() }),
    reply: z.object({ snapshots: z.array(ServiceSnapshot) }),
  },
  /** Makes a service fail on purpose, for tests. */
  fault: {
    params: z.object({
      service: z.string(),
      fault: z.discriminatedUnion("kind", [
        z.object({ kind: z.literal("crash") }),
        /** The next message is handled so much later. */
        z.object({ kind: z.literal("delay"), ms: z.int().min(0).max(3_600_000) }),
      ]),
    }),
    reply: z.object({}),
  },
  inspect: {
    /** `collectGarbage` first frees what is not used, so that `heapBytes` can be compared. */
    params: z.object({ collectGarbage: z.boolean().optional() }),
    reply: z.object({
      generation: z.int(),
      heapBytes: z.number(),
      services: z.array(
        z.object({
          name: z.string(),
          state: z.enum(["starting", "running", "suspended", "stopping"]),
          version: ServiceVersion,
          mailbox: z.int(),
          messages: z.int(),
          restarts: z.int(),
          module: z.string(),
        }),
      ),
    }),
  },
  ping: { params: z.object({}), reply: z.object({}) },
  stop: { params: z.object({ deadlineMs: z.int() }), reply: z.object({}) },
} as const;

export type RequestName = keyof typeof requests;
export type Params<N extends RequestName> = z.input<(typeof requests)[N]["params"]>;
export type Reply<N extends RequestName> = z.output<(typeof requests)[N]["reply"]>;

/** Failures have a code of this list, so that the manager can choose what to do. */
export const RuntimeErrorCode = z.enum([
  "load_failed",
  "not_found",
  "handler_failed",
  "timed_out",
  "suspend_timeout",
  "uncloneable_state",
  "migration_failed",
  "invalid_state",
  "start_failed",
  "unknown_generation",
  "too_large",
  "mailbox_full",
  "permission_denied",
]);
export type RuntimeErrorCode = z.infer<typeof RuntimeErrorCode>;

export const RuntimeError = z.object({
  code: RuntimeErrorCode,
  message: z.string(),
  stack: z.string().optional(),
  service: z.string().optional(),
});
export type RuntimeError = z.infer<typeof RuntimeError>;

/** Everything that the runtime sends. */
export const FromRuntime = z.discriminatedUnion("t", [
  z.object({ t: z.literal("hello"), protocol: z.literal(1), node: z.string(), pid: z.int() }),
  z.object({ t: z.literal("reply"), re: z.int(), ok: z.unknown() }),
  z.object({ t: z.literal("error"), re: z.int(), error: RuntimeError }),
  z.object({
    t: z.literal("log"),
    service: z.string().optional(),
    level: z.enum(["log", "warn", "error"]),
    text: z.string(),
  }),
  z.object({
    t: z.literal("crash"),
    service: z.string(),
    reason: z.string(),
    stack: z.string().optional(),
    restarts: z.int(),
  }),
  z.object({ t: z.literal("started"), service: z.string() }),
  z.object({ t: z.literal("stopped"), service: z.string(), reason: z.string() }),
  /** The app was refused a module or a function that its profile does not allow. */
  z.object({ t: z.literal("denied"), what: z.string().max(500), why: z.string().max(1_000) }),
  /** The root supervisor gave up. */
  z.object({ t: z.literal("ended"), reason: z.string() }),
]);
export type FromRuntime = z.infer<typeof FromRuntime>;

export const ToRuntime = z.object({ n: z.int(), t: z.string(), params: z.unknown() });
