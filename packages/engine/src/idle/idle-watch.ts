import { hasErrno } from "@atoll/host";
import { warn } from "../support/warn.ts";
import { IdleSandbox } from "./idle-sandbox.ts";

const tickMs = 100;
/** Each look takes a tenth of a millisecond, in which requests wait. */
const mostPerTick = 16;

/** Looks at all sandboxes of an engine from time to time, with one timer, so that idle ones cost next to nothing. */
export class IdleWatch {
  #slackMs: number;
  readonly #watched = new Set<IdleSandbox>();
  #timer: NodeJS.Timeout | undefined;

  /** `slackMs` is by how much timers in an idle sandbox may be late; 0 disables slack. */
  constructor({ slackMs }: { slackMs: number }) {
    this.#slackMs = slackMs;
  }

  add(): IdleSandbox {
    return new IdleSandbox({
      slackMs: this.#slackMs,
      now: () => performance.now(),
      onWatched: (sandbox) => this.#watch(sandbox),
      onError: (error) => this.#disable(error),
    });
  }

  #watch(sandbox: IdleSandbox): void {
    if (this.#slackMs === 0) return sandbox.leave();
    this.#watched.add(sandbox);
    this.#timer ??= setInterval(() => this.#tick(), tickMs).unref();
  }

  #tick(): void {
    const nowMs = performance.now();
    let looked = 0;
    for (const sandbox of this.#watched) {
      if (!sandbox.isWatched) this.#watched.delete(sandbox);
      else if (sandbox.dueMs <= nowMs && looked < mostPerTick) {
        looked += 1;
        sandbox.look();
        // The sandbox moves behind all others; it is not due again in this round.
        this.#watched.delete(sandbox);
        this.#watched.add(sandbox);
      }
    }
    if (this.#watched.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * If the kernel refuses permission for one container it refuses it for all, because this process may not change the
   * slack of others. Any other error, such as too many open files, concerns one sandbox, which stays as it is.
   */
  #disable(error: unknown): void {
    if (this.#slackMs === 0 || !hasErrno(error, "EPERM", "EACCES")) return;
    this.#slackMs = 0;
    for (const sandbox of this.#watched) sandbox.leave();
    warn(
      new Error("Cannot set the timer slack of idle sandboxes, so each costs about 2 % of a core", { cause: error }),
    );
  }
}
