import { CustomProfile, ProfileName, standardProfile } from "@atoll/protocol";
import { z } from "zod";
import type { ReloadCause } from "../events/live-event.ts";

const MiB = 1024 * 1024;

/** Unique among the apps of a manager, and part of the names of files and of cgroups. */
export const AppId = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "lower-case letters, digits, '_' and '-', at most 64");

export const AppLimitsInput = z.strictObject({
  memoryBytes: z
    .int()
    .min(16 * MiB)
    .max(64 * 1024 * MiB)
    .default(128 * MiB),
  processes: z.int().min(1).max(10_000).default(100),
  cpus: z.number().min(0.01).max(1024).default(0.5),
  fileBytes: z
    .int()
    .min(1024)
    .default(10 * MiB),
  /** A handler that blocks the app for longer than this has it killed and started again. */
  unresponsiveMs: z.int().min(100).default(5_000),
});

/** `live.json` in the folder of an app; every field can be given to `create`, too. */
export const AppConfig = z.strictObject({
  /** The module whose default export is the supervisor. */
  entry: z.string().default("src/app.ts"),
  /** The name of a security profile, or one that is described in place. It bounds everything below. */
  profile: z.union([ProfileName, CustomProfile]).default(standardProfile),
  isolation: z.enum(["strongest", "gvisor", "bubblewrap", "process"]).default("strongest"),
  limits: AppLimitsInput.prefault({}),
  env: z.record(z.string(), z.string()).default({}),
  ports: z.array(z.int().min(1).max(65_535)).default([]),
  autoReload: z.boolean().default(false),
  compileTimeoutMs: z.int().min(1).default(30_000),
  typeCheck: z.enum(["gate", "warn", "off"]).default("warn"),
  suspendTimeoutMs: z.int().min(1).default(5_000),
  migrateTimeoutMs: z.int().min(1).default(5_000),
  probationMs: z.int().min(0).default(2_000),
  /** `src/migrate.ts#migrate`: used for services without `codeChange`. */
  migration: z.string().optional(),
  /** Files that a change of starts a reload. */
  watch: z.array(z.string()).default(["**/*.{ts,mts,js,mjs,json}"]),
  /** How often the states of all services are saved, for a process that dies; 0 saves them at reloads only. */
  snapshotMs: z.int().min(0).default(30_000),
  debounceMs: z.int().min(0).default(20),
  maxRestarts: z.int().min(0).default(3),
  restartWindowMs: z.int().min(1).default(60_000),
});
export type AppConfig = z.output<typeof AppConfig>;
export type AppConfigInput = z.input<typeof AppConfig>;

export const appStates = [
  "initializing",
  "compiling",
  "starting",
  "running",
  "reloading",
  "stopping",
  "stopped",
  "error",
] as const;
export type AppState = (typeof appStates)[number];

export interface AppInfo {
  id: string;
  state: AppState;
  /** Why it is in this state, for a state that needs a reason. */
  reason: string | undefined;
  folder: string;
  /** The name of its security profile. */
  profile: string;
  isolation: "process" | "bubblewrap" | "gvisor";
  enforcement: string[];
  generation: number;
  /** The generation that held last, and that a crash loop would go back to; 0 if there is none. */
  lastGood: number;
  restarts: number;
  lastRestart: { at: string; reason: string } | undefined;
  autoReload: boolean;
  createdAt: string;
  updatedAt: string;
  ports: { port: number; host: string; hostPort: number }[];
}

export interface ReloadOptions {
  cause: ReloadCause;
  /** A value that is passed to `codeChange`. */
  extra?: unknown;
}

/** What `hotReload` did. */
export interface ReloadResult {
  result: "reloaded" | "no_change";
  generation: number;
  modules: string[];
  services: string[];
  durationMs: number;
  phases: { compile: number; prepare: number; suspend: number; commit: number };
}
