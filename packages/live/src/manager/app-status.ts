import { messageOf } from "@atoll/host";
import type { LiveEventBody } from "../events/live-event.ts";
import type { AppInfo, AppState } from "./app-options.ts";
import { nextState } from "./app-states.ts";

type Facts = Pick<AppInfo, "id" | "folder" | "isolation" | "profile">;

/** The state of an app with its reason, and how often its process was started again. */
export class AppStatus {
  readonly #facts: Facts;
  readonly #emit: (event: LiveEventBody) => void;
  readonly #createdAt = new Date();
  #updatedAt = new Date();
  state: AppState = "initializing";
  reason: string | undefined;
  #restarts = 0;
  #lastRestart: AppInfo["lastRestart"];
  autoReload = false;
  ports: AppInfo["ports"] = [];
  enforcement: string[] = [];

  constructor(facts: Facts, emit: (event: LiveEventBody) => void) {
    this.#facts = facts;
    this.#emit = emit;
  }

  info(generation: number, lastGood: number): AppInfo {
    const { state, reason, autoReload, ports, enforcement } = this;
    return {
      ...this.#facts,
      state,
      reason,
      generation,
      lastGood,
      autoReload,
      ports,
      enforcement,
      restarts: this.#restarts,
      lastRestart: this.#lastRestart,
      createdAt: this.#createdAt.toISOString(),
      updatedAt: this.#updatedAt.toISOString(),
    };
  }

  change(to: AppState, reason?: string): void {
    if (this.state === to) return;
    const from = this.state;
    this.state = nextState(from, to);
    this.reason = reason;
    this.#updatedAt = new Date();
    this.#emit({ type: "app.state", state: to, from, ...(reason === undefined ? {} : { reason }) });
  }

  /** The app stays visible with its reason until it is restarted, reloaded or destroyed. */
  fail(error: unknown): void {
    this.change("error", messageOf(error));
  }

  countRestart(reason: string): void {
    this.#restarts += 1;
    this.#lastRestart = { at: new Date().toISOString(), reason };
  }
}
