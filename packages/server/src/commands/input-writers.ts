import { appendFile, readFile, rename, writeFile } from "node:fs/promises";
import { z } from "zod";

/**
 * The number of writers that are remembered; those that have not written for longest are forgotten. A forgotten writer
 * that returns is refused because of a gap: nothing is written twice.
 */
const mostWriters = 1_000;

/** The number of lines after which the file is rewritten. */
const mostLines = 1_024;

/** The name of a writer; it is empty for bytes without a writer's name. */
const Writer = z.string().max(64);

/**
 * A line of the file: from `at` on, input is from this writer; or, at `at`, each writer had sent this number of bytes.
 */
const Line = z.union([
  z.strictObject({ at: z.int().min(0), writer: Writer }),
  z.strictObject({ at: z.int().min(0), bytes: z.record(Writer, z.int().min(0)) }),
]);

/**
 * Counts how much of a command's input each writer has sent, so that bytes that one writer sends again after a broken
 * connection are distinguished from those of another. The file records where one writer follows another, before any
 * byte of the other is sent: together with the number of bytes that the process has, this says which bytes are whose.
 */
export class InputWriters {
  readonly #file: string;
  #bytes = new Map<string, number>();
  #current: string | undefined;
  #lines = 0;

  constructor(file: string) {
    this.#file = file;
  }

  /** Opens the file that an earlier server left. The process has received `acceptedBytes` of the input. */
  static async open(file: string, acceptedBytes: number): Promise<InputWriters> {
    const writers = new InputWriters(file);
    const text = await readFile(file, "utf8").catch((error: unknown) => {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return "";
      throw error;
    });
    const lines = text.split("\n").flatMap((line) => Line.safeParse(parseJson(line)).data ?? []);
    for (const [index, line] of lines.entries()) {
      if ("bytes" in line) writers.#bytes = new Map(Object.entries(line.bytes));
      else {
        const endAt = Math.min(lines[index + 1]?.at ?? acceptedBytes, acceptedBytes);
        writers.accept(line.writer, Math.max(0, endAt - line.at));
      }
    }
    writers.#lines = lines.length;
    return writers;
  }

  acceptedFrom(writer: string): number {
    return this.#bytes.get(writer) ?? 0;
  }

  /** Records that bytes of `writer` follow from `at` on. It is called before they are sent. */
  async begin(writer: string, at: number): Promise<void> {
    if (writer === this.#current) return;
    const line = JSON.stringify({ at, writer });
    if (this.#lines >= mostLines) await this.#compact(at);
    // The line break before the line keeps it whole behind the half line of an earlier attempt.
    await appendFile(this.#file, `\n${line}`, { mode: 0o600 });
    this.#lines += 1;
    this.#current = writer;
  }

  accept(writer: string, bytes: number): void {
    const before = this.acceptedFrom(writer);
    this.#bytes.delete(writer);
    this.#bytes.set(writer, before + bytes);
    const [oldest] = this.#bytes.keys();
    if (this.#bytes.size > mostWriters && oldest !== undefined) this.#bytes.delete(oldest);
  }

  async #compact(at: number): Promise<void> {
    const next = `${this.#file}.next`;
    await writeFile(next, JSON.stringify({ at, bytes: Object.fromEntries(this.#bytes) }), { mode: 0o600 });
    await rename(next, this.#file);
    this.#current = undefined;
    this.#lines = 1;
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
