import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/host";

/** How long instances took when they ran last, by id: the longest are started first. */
export class Durations {
  readonly #path: string;
  readonly #known: Map<string, number>;

  private constructor(path: string, known: Map<string, number>) {
    this.#path = path;
    this.#known = known;
  }

  static async read(cacheDirectory: string): Promise<Durations> {
    await mkdir(cacheDirectory, { recursive: true });
    const path = join(cacheDirectory, "durations.json");
    const content = await readFile(path, "utf8").then(
      (text) => JSON.parse(text) as object,
      () => ({}),
    );
    const entries = Object.entries(content).filter((entry): entry is [string, number] => typeof entry[1] === "number");
    return new Durations(path, new Map(entries));
  }

  /** An instance of which nothing is known comes first: it may be the longest. */
  expected(id: string): number {
    return this.#known.get(id) ?? Number.POSITIVE_INFINITY;
  }

  record(id: string, durationMs: number): void {
    this.#known.set(id, Math.round(durationMs));
  }

  async write(): Promise<void> {
    await writeDurably(this.#path, JSON.stringify(Object.fromEntries(this.#known)));
  }
}
