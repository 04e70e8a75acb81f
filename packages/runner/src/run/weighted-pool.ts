/** What an item occupies while it runs, and what a machine has. */
export interface Weights {
  cpus: number;
  memoryBytes: number;
  diskBytes: number;
}

interface Waiting {
  weights: Weights;
  start: () => void;
}

/**
 * Lets work run as far as there is room for it. Work starts in the order in which it comes, so that something large is
 * not overtaken for ever; what is larger than everything that there is runs alone.
 */
export class WeightedPool {
  readonly #capacity: Weights;
  readonly #jobs: number;
  readonly #used: Weights = { cpus: 0, memoryBytes: 0, diskBytes: 0 };
  readonly #waiting: Waiting[] = [];
  #running = 0;

  constructor(jobs: number, capacity: Weights) {
    this.#jobs = jobs;
    this.#capacity = capacity;
  }

  async run<Result>(weights: Weights, work: () => Promise<Result>): Promise<Result> {
    await new Promise<void>((start) => {
      this.#waiting.push({ weights, start });
      this.#startNext();
    });
    try {
      return await work();
    } finally {
      this.#running -= 1;
      this.#add(weights, -1);
      this.#startNext();
    }
  }

  #startNext(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#fits(next.weights); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#running += 1;
      this.#add(next.weights, 1);
      next.start();
    }
  }

  #fits(weights: Weights): boolean {
    if (this.#running === 0) return true;
    const hasRoom = (name: keyof Weights): boolean => this.#used[name] + weights[name] <= this.#capacity[name];
    return this.#running < this.#jobs && hasRoom("cpus") && hasRoom("memoryBytes") && hasRoom("diskBytes");
  }

  #add(weights: Weights, sign: 1 | -1): void {
    for (const name of ["cpus", "memoryBytes", "diskBytes"] as const) this.#used[name] += sign * weights[name];
  }
}
