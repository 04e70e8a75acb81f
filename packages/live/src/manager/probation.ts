import type { Kept } from "./app-recovery.ts";

/** The time after a reload in which a crash of a reloaded service brings the old code and its states back. */
export class Probation {
  /** The generation that is tried. */
  readonly generation: number;
  readonly previous: Kept;
  readonly #services: ReadonlySet<string>;
  readonly #timer: NodeJS.Timeout;

  constructor(
    { generation, services, previous }: { generation: number; services: Iterable<string>; previous: Kept },
    ms: number,
    onHeld: () => void,
  ) {
    this.generation = generation;
    this.previous = previous;
    this.#services = new Set(services);
    this.#timer = setTimeout(onHeld, ms);
    this.#timer.unref();
  }

  covers(service: string): boolean {
    return this.#services.has(service);
  }

  end(): void {
    clearTimeout(this.#timer);
  }
}
