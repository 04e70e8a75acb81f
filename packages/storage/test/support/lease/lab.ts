import { Leases, type Clock, type LeasesOptions, type LeaseTiming, type ObjectStore } from "../../../src/index.ts";
import { parseLeaseDocument, type LeaseDocument } from "../../../src/lease/lease-document.ts";
import { MemoryObjectStore } from "../memory-object-store.ts";
import { skewedClock, Timeline, type Skew } from "./timeline.ts";
import { quickFate, unreliableStore, type Fate } from "./unreliable-store.ts";

export const leaseKey = "sandboxes/one/lease.json";

export const labTiming: LeaseTiming = {
  ttlMs: 1000,
  stopMs: 300,
  renewMs: 200,
  watchMs: 100,
  callMs: 200,
  retryMs: 40,
  pollMs: 50,
  waiterTtlMs: 600,
};

/** A server whose next calls to the store have the fates that a test sets, and which a test can stop. */
export class LabServer {
  readonly leases: Leases;
  /** The fates of the next calls, one each; later calls have the fate `usual`. */
  readonly fates: Partial<Fate>[] = [];
  usual: Partial<Fate> = {};
  readonly store: ObjectStore;
  readonly clock: Clock;
  calls = 0;
  #isStopped = false;
  #waiting: (() => void)[] = [];

  constructor(lab: LeaseLab, id: string, skew: Skew, options: Partial<LeasesOptions>) {
    const { timeline } = lab;
    const deliver = (action: () => void): void => {
      if (this.#isStopped) this.#waiting.push(action);
      else action();
    };
    const nextFate = (): Fate => {
      this.calls += 1;
      return { ...quickFate, ...(this.fates.shift() ?? this.usual) };
    };
    this.store = unreliableStore(lab.store, { timeline, nextFate, deliver });
    this.clock = skewedClock(timeline, skew, deliver);
    const self = { id, url: `http://${id}` };
    this.leases = new Leases({ store: this.store, self, timing: labTiming, clock: this.clock, ...options });
  }

  /** Works like SIGSTOP: the server's clock goes on, and nothing of it runs. */
  stop(): void {
    this.#isStopped = true;
  }

  wake(): void {
    this.#isStopped = false;
    for (const action of this.#waiting.splice(0)) action();
  }
}

/** Servers around one store, in a time that passes only while a test waits for something. */
export class LeaseLab {
  readonly timeline = new Timeline();
  readonly store = new MemoryObjectStore();

  server(id: string, options: Partial<LeasesOptions> & { skew?: Skew } = {}): LabServer {
    const { skew = { offsetMs: 0, rate: 1 }, ...rest } = options;
    return new LabServer(this, id, skew, rest);
  }

  /** Resolves with the result of a promise, giving it as much time as it needs. */
  async of<T>(promise: Promise<T>, limitMs = 60_000): Promise<T> {
    let isSettled = false;
    const settled = promise.finally(() => {
      isSettled = true;
    });
    settled.catch(() => undefined);
    if (!(await this.timeline.until(() => isSettled, limitMs))) throw new Error(`not settled in ${limitMs} ms`);
    return settled;
  }

  /** Resolves with the error that a promise rejects with. */
  async errorOf(promise: Promise<unknown>): Promise<unknown> {
    return this.of(
      promise.then(
        () => undefined,
        (error: unknown) => error,
      ),
    );
  }

  async document(): Promise<LeaseDocument | undefined> {
    const found = await this.store.get(leaseKey);
    return found === undefined ? undefined : parseLeaseDocument(found.data, leaseKey);
  }
}
