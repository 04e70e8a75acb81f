import { AppId, type AppInfo, type LiveEvent, type LiveManager } from "@atoll/live";
import { z } from "zod";

/** The server for apps of the level `gvisor`, as the settings of the command name it. */
const Setting = z
  .strictObject({ value: z.string().optional(), source: z.enum(["flag", "environment", "file", "default"]) })
  .transform(({ value, source }) => ({ value, source }));
const Server = z.strictObject({ url: Setting, key: Setting });

/** What a person can choose when they create an app; what is absent comes from `live.json`. */
export const CreateOptions = z.strictObject({
  isolation: z.enum(["strongest", "gvisor", "bubblewrap", "process"]).optional(),
  profile: z.string().optional(),
  limits: z
    .strictObject({
      memoryBytes: z.int().optional(),
      processes: z.int().optional(),
      cpus: z.number().optional(),
      fileBytes: z.int().optional(),
    })
    .optional(),
  env: z.record(z.string(), z.string()).optional(),
  ports: z.array(z.int()).optional(),
  autoReload: z.boolean().optional(),
  typeCheck: z.enum(["gate", "warn", "off"]).optional(),
});
export type CreateOptions = z.infer<typeof CreateOptions>;

const id = AppId;
const number = z.int().min(1);
const Target = z.union([
  z.strictObject({ generation: number }),
  z.strictObject({ module: z.string(), version: number }),
]);

/** What commands ask the manager for, each on a connection of its own. */
export const AppRequest = z.discriminatedUnion("method", [
  z.strictObject({ method: z.literal("create"), id, folder: z.string(), options: CreateOptions, server: Server }),
  z.strictObject({ method: z.literal("start"), id, generation: number.optional(), server: Server }),
  z.strictObject({ method: z.literal("list") }),
  z.strictObject({ method: z.literal("inspect"), id }),
  z.strictObject({ method: z.literal("reload"), id }),
  z.strictObject({ method: z.literal("rollback"), id, target: Target.optional() }),
  z.strictObject({ method: z.literal("versions"), id }),
  z.strictObject({ method: z.literal("history"), id, module: z.string() }),
  z.strictObject({ method: z.literal("diff"), id, module: z.string().optional(), from: number, to: number }),
  z.strictObject({
    method: z.literal("call"),
    id,
    service: z.string(),
    name: z.string(),
    argument: z.json().optional(),
    timeoutMs: z.int().min(1).optional(),
    isCast: z.boolean(),
  }),
  z.strictObject({ method: z.literal("watch"), ids: z.array(AppId) }),
  z.strictObject({ method: z.literal("remove"), id }),
]);
export type AppRequest = z.infer<typeof AppRequest>;

type Inspection = Awaited<ReturnType<LiveManager["inspect"]>>;

/** An app as commands show it. One whose manager has died is `interrupted`. */
export type KnownApp = Omit<AppInfo, "state"> & { state: AppInfo["state"] | "interrupted" };

export interface AppDetails {
  app: KnownApp;
  /** Absent while the app does not run. */
  running?: { services: Inspection["services"]; memoryBytes: number; cpuMs: number; processes: number };
}

/** The result of each method. */
export interface AppReplies {
  create: { app: KnownApp; note?: string };
  start: { app: KnownApp; note?: string };
  list: KnownApp[];
  inspect: AppDetails;
  reload: Awaited<ReturnType<LiveManager["hotReload"]>>;
  rollback: Awaited<ReturnType<LiveManager["rollback"]>>;
  versions: ReturnType<LiveManager["listVersions"]>;
  history: ReturnType<LiveManager["history"]>;
  diff: Awaited<ReturnType<LiveManager["diff"]>>;
  call: { value: unknown };
  watch: null;
  remove: null;
}

/** A failure; `details` has the mistakes in the code of the app that caused it, if any did. */
export interface AppFailure {
  code: string;
  message: string;
  suggestion?: string;
  details?: Record<string, unknown>;
}

/**
 * A line from the manager. `watch` gets `isReady` when all that has happened before is in the logs on disk, and then
 * events. A result or an error is the last line.
 */
export type AppLine = { isReady: true } | { event: LiveEvent } | { result: unknown } | { error: AppFailure };

/** Nothing that a command sends is larger. */
export const maxRequestBytes = 8 * 1024 * 1024;
