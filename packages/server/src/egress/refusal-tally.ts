import type { EgressDecision } from "./create-egress-handler.ts";

/** The time over which refusals are counted together. */
const intervalMs = 60_000;
/** The number of refusals of one host, port and verdict that are logged one by one. */
const firstOfEach = 3;
/** The number of hosts and ports that are counted separately; refusals of all others are counted together. */
const mostPlaces = 16;

/** The entry that stands for all other places. */
const elsewhere = {
  host: "*",
  port: 0,
  verdict: "refused",
  because: "too many places were asked for, so these are only counted",
} as const;

/** A refusal as it is logged. With `more`, it stands for that many refusals that were not logged one by one. */
export type LoggedRefusal = Pick<EgressDecision, "host" | "port" | "verdict" | "because"> & { more?: number };

/**
 * Decides what is logged of the refusals of one sandbox. The first ones are logged at once, and those that follow are
 * counted and logged as a number at the end of the minute: a sandbox that asks without end must not push the history of
 * other sandboxes out of the journal and the audit log. Every refusal is logged or counted.
 */
export class RefusalTally {
  readonly #log: (refusal: LoggedRefusal) => void;
  readonly #places = new Map<string, { logged: number; more: number; last: LoggedRefusal }>();
  #elsewhere = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(log: (refusal: LoggedRefusal) => void) {
    this.#log = log;
  }

  add({ host, port, verdict, because }: EgressDecision): void {
    const last = { host, port, verdict, because };
    const key = `${verdict} ${port} ${host}`;
    const place = this.#places.get(key) ?? { logged: 0, more: 0, last };
    if (place.logged === 0 && this.#places.size >= mostPlaces) this.#elsewhere += 1;
    else if (place.logged < firstOfEach) {
      this.#places.set(key, { ...place, logged: place.logged + 1 });
      this.#log(last);
    } else this.#places.set(key, { ...place, more: place.more + 1, last });
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.flush(), intervalMs);
    this.#timer.unref();
  }

  /** Logs what was counted, and starts counting again. */
  flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const places = [...this.#places.values()];
    const more = this.#elsewhere;
    this.#places.clear();
    this.#elsewhere = 0;
    for (const place of places) if (place.more > 0) this.#log({ ...place.last, more: place.more });
    if (more > 0) this.#log({ ...elsewhere, more });
  }
}
