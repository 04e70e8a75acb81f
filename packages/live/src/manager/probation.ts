/** The time after a reload in which a crash of a reloaded service brings the old code back. */
export class Probation {
  readonly #services: ReadonlySet<string>;
  readonly #timer: NodeJS.Timeout;

  constructor(services: Iterable<string>, ms: number, onHeld: () => void) {
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
