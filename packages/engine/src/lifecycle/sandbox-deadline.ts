import { SandboxError, type SandboxId } from "@atoll/protocol";
import type { DeadlineFile, DeadlineOrder } from "../drivers/deadline-file.ts";
import { uptimeMs } from "../support/uptime.ts";

/**
 * The time until which a sandbox may run, in whichever container it is. The launcher of the container enforces it, so
 * that it holds also when this server is dead or stopped. This class has the requested time, and sends it to the
 * container.
 */
export class SandboxDeadline {
  readonly #sandboxId: SandboxId;
  #untilMs: number | undefined;
  #file: DeadlineFile | undefined;
  #wasEverSet = false;
  #isSuspended = false;
  #turn: Promise<void> = Promise.resolve();
  #waiting = new Set<() => void>();
  #postponed: (() => Promise<void>) | undefined;

  constructor(sandboxId: SandboxId) {
    this.#sandboxId = sandboxId;
  }

  /** The deadline; undefined means no limit. */
  get uptimeMs(): number | undefined {
    return this.#untilMs;
  }

  get hasPassed(): boolean {
    return this.#untilMs !== undefined && uptimeMs() >= this.#untilMs;
  }

  /** Resolves when the container applies the deadline; without a container it is for the next one. */
  async set(untilMs: number | undefined): Promise<void> {
    this.#untilMs = untilMs;
    this.#wasEverSet ||= untilMs !== undefined;
    await this.#write();
    for (const look of this.#waiting) look();
    if (this.hasPassed) return;
    const work = this.#postponed;
    this.#postponed = undefined;
    await work?.();
  }

  /** Runs `work` after the first `set` that lets a frozen sandbox run. Until then its requests are refused. */
  postpone(work: () => Promise<void>): void {
    this.#postponed = work;
  }

  assertReachable(): void {
    if (this.#postponed !== undefined) throw this.#over("reach");
  }

  assertMayStart(): void {
    if (this.hasPassed) throw this.#over("start");
  }

  /** Takes over the deadline file of the sandbox's container, which was started with the deadline of that moment. */
  async enter(file: DeadlineFile): Promise<void> {
    this.#file = file;
    this.#isSuspended = false;
    if (!this.#wasEverSet) return;
    const order = await file.read();
    const isSame = order.kind === "until" ? order.uptimeMs === this.#untilMs : this.#untilMs === undefined;
    if (!isSame) await this.#write();
  }

  /** Takes over the deadline of a container that an earlier server started; it is in force again, or still. */
  async inherit(file: DeadlineFile): Promise<void> {
    const order = await file.read();
    this.#untilMs = order.kind === "never" ? undefined : order.uptimeMs;
    this.#wasEverSet = this.#untilMs !== undefined;
    this.#file = file;
    this.#isSuspended = false;
    if (order.kind === "still") await this.#write();
  }

  leave(): void {
    this.#file = undefined;
    this.#isSuspended = false;
  }

  /**
   * Suspends the deadline until `enforce`, because nothing in the container runs: its runtime may work past the
   * deadline.
   */
  async suspend(): Promise<void> {
    if (this.#untilMs === undefined) return;
    this.#isSuspended = true;
    await this.#write();
  }

  async enforce(): Promise<void> {
    if (!this.#isSuspended) return;
    this.#isSuspended = false;
    await this.#write();
  }

  /** Resolves when the deadline has not passed: at once, or with a later deadline. */
  async allowed(signal: AbortSignal): Promise<void> {
    while (this.hasPassed) {
      signal.throwIfAborted();
      await new Promise<void>((resolve) => {
        const go = (): void => {
          this.#waiting.delete(go);
          signal.removeEventListener("abort", go);
          resolve();
        };
        this.#waiting.add(go);
        signal.addEventListener("abort", go, { once: true });
      });
    }
    signal.throwIfAborted();
  }

  #over(what: string): SandboxError {
    const sandboxId = this.#sandboxId;
    return new SandboxError(
      "unavailable",
      `Cannot ${what} sandbox ${sandboxId}: the time until which it may run is over`,
      { suggestion: "Wait until its server has got the right to run it again.", details: { sandboxId } },
    );
  }

  /** Sends the current deadline; calls at the same time share the last value. */
  #write(): Promise<void> {
    const turn = this.#turn.then(async () => this.#file?.order(this.#order));
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  get #order(): DeadlineOrder {
    if (this.#untilMs === undefined) return { kind: "never" };
    return { kind: this.#isSuspended ? "still" : "until", uptimeMs: this.#untilMs };
  }
}
