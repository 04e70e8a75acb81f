import type { EgressDecision } from "./create-egress-handler.ts";

/** For so long refusals are counted together. */
const intervalMs = 60_000;
/** So many of one host, port and verdict are told one by one. */
const firstOfEach = 3;
/** Of so many hosts and ports; those of all others are counted as one. */
const mostPlaces = 16;

/** Stands for all others. */
const elsewhere = {
  host: "*",
  port: 0,
  verdict: "refused",
  because: "so many places were asked for that these are only counted",
} as const;

/** As it is logged: with `more`, it stands for so many that were not told one by one. */
export type LoggedRefusal = Pick<EgressDecision, "host" | "port" | "verdict" | "because"> & { more?: number };

/**
 * What is told of the refusals of one sandbox. The first ones are told at once, and those that follow are counted and
 * told as a number at the end of the minute: a sandbox that asks without end must not push everybody's history out of
 * the journal and the audit log. None goes untold.
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

  /** Tells what was counted, and begins anew. */
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
