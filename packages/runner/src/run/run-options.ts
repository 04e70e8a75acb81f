import type { SandboxClient } from "../client/sandbox-client.ts";
import type { CompatFix } from "../compat/compat-fix.ts";
import type { PlanEnvironment } from "../environments/environment.ts";
import type { RunEvent } from "../journal/events.ts";
import type { Instance, Prediction } from "../models/task.ts";

/** One thing to run. Without a prediction it is a task: its baseline is run, and compared with what it expects. */
export interface RunItem {
  instance: Instance;
  prediction: Prediction | null;
}

export interface RunOptions {
  /** Names the run: labels of its sandboxes have it. Letters, digits, `.`, `_` and `-`. */
  runId: string;
  /**
   * The directory of the run: `events.ndjson`, `logs/`, `run_report.json`. If it has the journal of an earlier call,
   * that run is resumed: what has ended with the same key is not done a second time.
   */
  directory: string;
  /** A directory that runs share, for repositories, interpreters, packages, and fixes that environments needed. */
  cacheDirectory: string;
  client: SandboxClient;
  items: readonly RunItem[];
  /** A folder of clones, for instances that name no repository of their own. Without it they are fetched by URL. */
  repos?: string;
  /** Instances at the same time, as far as processors, memory and disk allow. 1 by default. */
  jobs?: number;
  /** Test runs of each prediction, each with a seed of its own. 1 by default. */
  repeat?: number;
  /** Seeds of the test runs; 0, 1, 2 … by default. */
  seeds?: readonly number[];
  /** Instead of what a repository's own `compat` says. */
  compatMode?: "off" | "suggest" | "auto";
  /** The user's own fixes, beside the catalogue. */
  fixes?: readonly CompatFix[];
  /** Ids of tests that are known to be flaky: they are run and reported, and decide no verdict. */
  quarantine?: readonly string[];
  /** `false`: use no snapshot, and make none. */
  useCache?: boolean;
  /** Snapshots of the runner beyond this are removed after the run, the least recently used first. */
  cacheBytes?: number;
  /** Aborted: nothing new is started, and what runs goes on to its end. */
  drain?: AbortSignal;
  /** Aborted: everything is ended and removed now. The report says that the run was interrupted. */
  signal: AbortSignal;
  /** Receives every event in order, `command.output` included. */
  onEvent?: (event: RunEvent) => void;
  /** How environments are planned; the recipes of this package by default. */
  plan?: PlanEnvironment;
}
