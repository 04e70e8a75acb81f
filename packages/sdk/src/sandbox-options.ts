import type { CreateSandboxInput, routes, UpdateSandboxInput } from "@atoll/protocol";
import type { z } from "zod";
import type { Atoll } from "./client.ts";
import type { ConnectionOptions } from "./connection-options.ts";

export interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** The time limit of requests that move gigabytes. */
export const unhurried = { timeoutMs: 10 * 60_000 };

export type WithConnection = ConnectionOptions & { client?: Atoll | undefined };

export interface CreateOptions extends CreateSandboxInput, WithConnection, SignalOption {
  /** The same as `env`. */
  envs?: Record<string, string> | undefined;
}

export type Metrics = z.infer<typeof routes.getUsage.reply>;
/** What a sandbox used over the last minutes. */
export type MetricsHistory = z.infer<typeof routes.getUsageHistory.reply>;
export type Timeouts = NonNullable<UpdateSandboxInput["timeouts"]>;
