import { messageOf } from "@atoll/host";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { LiveEventBody } from "../events/live-event.ts";
import { classifyError, suggestRecovery, type Recovery } from "../recovery/classify.ts";
import { RestartBudget } from "../recovery/restart-budget.ts";
import type { AppVersions } from "../versions/app-versions.ts";
import type { ServiceSnapshot } from "../wire/protocol.ts";
import type { Generation } from "./app-code.ts";
import type { AppConfig } from "./app-options.ts";

/** A generation with the states that an app had when it left it. */
export interface Kept {
  generation: Generation;
  snapshots: ServiceSnapshot[];
}

interface Decision {
  recovery: Recovery;
  /** How often the app ended before within its period. */
  attempts: number;
  /** Whether new code was refused and never used, so that there is nothing to undo. */
  isRefusal: boolean;
  lastGood: Kept | undefined;
}

/** The number of generations whose states are kept. */
const maxLeft = 3;

/** Decides what helps an app, by the error and by what was tried before. */
export class AppRecovery {
  readonly #id: string;
  readonly #config: AppConfig;
  readonly #versions: AppVersions;
  readonly #emit: (event: LiveEventBody) => void;
  readonly #ends: RestartBudget;
  /** The states of generations that held, from when they were left. */
  readonly #left = new Map<number, Kept>();
  /** An app goes back once. If that does not help, it ends. */
  #wentBack = false;
  /** Why no code is taken until a restart is requested. */
  #isolatedBecause: string | undefined;

  constructor(id: string, config: AppConfig, versions: AppVersions, emit: (event: LiveEventBody) => void) {
    this.#id = id;
    this.#config = config;
    this.#versions = versions;
    this.#emit = emit;
    this.#ends = new RestartBudget(config.restartWindowMs);
  }

  /** New code was committed in place of a generation: it begins without a past. */
  left(kept: Kept): void {
    this.#ends.reset();
    this.#wentBack = false;
    this.#left.set(kept.generation.number, kept);
    const [oldest] = this.#left.keys();
    if (this.#left.size > maxLeft && oldest !== undefined) this.#left.delete(oldest);
  }

  /** A person started the app again. */
  forget(): void {
    this.#ends.reset();
    this.#wentBack = false;
    this.#isolatedBecause = undefined;
  }

  isolate(reason: string): void {
    this.#isolatedBecause = reason;
  }

  assertNotIsolated(): void {
    if (this.#isolatedBecause === undefined) return;
    throw new SandboxError(
      "permission_denied",
      `Cannot reload ${this.#id}: it is isolated, because ${this.#isolatedBecause}`,
      { suggestion: "Look at what it did, and restart it if that is all right." },
    );
  }

  async decide(error: unknown, isRunning: boolean, now: Kept): Promise<Decision> {
    const current = now.generation.number;
    const isRefusal = isRunning && ["compile_failed", "reload_failed"].some((code) => hasCode(error, code));
    const attempts = isRefusal ? 0 : this.#ends.count();
    const lastGood = this.#wentBack ? undefined : await this.#lastGood(now);
    const { maxRestarts } = this.#config;
    const context = { attempts, maxRestarts, hasLastGood: lastGood !== undefined, isRunning };
    const recovery = current === 0 ? "terminate" : suggestRecovery(error, context);
    const reason = messageOf(error);
    const code = isSandboxError(error) ? error.code : "internal";
    if (!isRunning) {
      const willRestart = recovery !== "isolate" && recovery !== "terminate";
      this.#emit({ type: "process.end", reason, willRestart });
    }
    this.#emit({ type: "recovery", kind: classifyError(error), recovery, code, reason, attempt: attempts + 1 });
    if (recovery === "rollback" && !isRefusal) {
      this.#ends.reset();
      this.#wentBack = true;
    }
    return { recovery, attempts, isRefusal, lastGood };
  }

  /** The newest other generation that held, with the states that it had when it was left, or else those of now. */
  async #lastGood({ generation, snapshots }: Kept): Promise<Kept | undefined> {
    const number = this.#versions.goodBeside(generation.number);
    if (number === undefined) return undefined;
    const left = this.#left.get(number);
    if (left !== undefined) return left;
    const modules = await this.#versions.modulesOf(number).catch(() => undefined);
    return modules === undefined ? undefined : { generation: { number, modules }, snapshots };
  }
}

const hasCode = (error: unknown, code: string): boolean => isSandboxError(error) && error.code === code;
