import type { AppliedFix } from "../models/report.ts";

/** What is known of an environment when a fix is planned. */
export interface EnvFacts {
  language: "python" | "node" | "none";
  /** The version of the interpreter in use, such as `[3, 11, 2]`. */
  version: readonly number[];
  /** Versions of interpreters that could be used instead. */
  interpreters: readonly string[];
  repo: string;
  /** Installed distributions by lower-case name. */
  packages: Readonly<Record<string, string>>;
}

/** The changes that a fix makes. All of them are outside the work tree, except for `rewrites`. */
export interface FixPlan {
  env?: Readonly<Record<string, string>>;
  /** Names of aliases that the run-time shim installs. */
  shim?: readonly string[];
  interpreter?: string;
  packages?: { add?: readonly string[]; remove?: readonly string[] };
  /** Arguments that are added to the test command. */
  appendArgs?: readonly string[];
  /** Files to write, by path relative to the work tree. Never part of a diff: they are excluded from git. */
  files?: Readonly<Record<string, string>>;
  /** A command that rewrites sources; only on request. */
  rewrites?: readonly string[][];
}

/** A fix that was chosen for an instance. It is stored with the cache, so that later runs start with it. */
export interface PlannedFix {
  id: string;
  plan: FixPlan;
}

/** What a test run looked like when fixes are chosen. */
export interface Symptoms {
  /** The tail of the output, ANSI sequences removed. */
  text: string;
  /** Expected test ids that the results do not have, with all ids that they have. */
  missing: readonly string[];
  seen: readonly string[];
  /** Tests that should pass in this state and have failed. */
  failing: readonly string[];
}

export interface CompatFix {
  readonly id: string;
  readonly layer: AppliedFix["layer"];
  readonly languages: readonly EnvFacts["language"][];
  readonly risk: AppliedFix["risk"];
  readonly why: string;
  readonly what: string;
  /** The text of the symptom, or `undefined` when this fix is not for it. */
  detect(symptoms: Symptoms, facts: EnvFacts): string | undefined;
  plan(symptoms: Symptoms, facts: EnvFacts): FixPlan;
  /**
   * For a fix that can be needed several times with different plans, such as one per module: what distinguishes them.
   * It becomes part of the id, `missing-module:yaml`.
   */
  variant?(symptoms: Symptoms, facts: EnvFacts): string;
  readonly conflicts?: readonly string[];
}
