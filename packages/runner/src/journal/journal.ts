import { open, readFile, truncate, type FileHandle } from "node:fs/promises";
import { hasErrno } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { RunEvent, RunEventBody } from "./events.ts";

/**
 * The events of a run, one line of JSON each, in the order in which they happened. The file is only ever appended to.
 * What `sync` has covered survives a crash of the machine.
 */
export class Journal implements AsyncDisposable {
  readonly #file: FileHandle;
  readonly #path: string;
  #seq: number;
  #tail: Promise<void> = Promise.resolve();
  #failure: SandboxError | undefined;

  private constructor(file: FileHandle, path: string, seq: number) {
    this.#file = file;
    this.#path = path;
    this.#seq = seq;
  }

  /** Opens a journal for more events. A last line that a crash has cut off is removed first. */
  static async open(path: string): Promise<{ journal: Journal; events: RunEvent[] }> {
    const { events, bytes, size } = await readEvents(path);
    if (bytes < size) await truncate(path, bytes);
    const journal = new Journal(await open(path, "a", 0o600), path, (events.at(-1)?.seq ?? 0) + 1);
    return { journal, events };
  }

  /** Numbers the event and has it written after those before it. A failed write is reported by `sync`. */
  append(body: RunEventBody): RunEvent {
    const event: RunEvent = { seq: this.#seq, at: new Date().toISOString(), ...body };
    this.#seq += 1;
    if (body.type === "command.output") return event;
    const line = `${JSON.stringify(event)}\n`;
    this.#tail = this.#tail.then(async () => {
      if (this.#failure !== undefined) return;
      await this.#file.appendFile(line).catch((cause: unknown) => {
        this.#failure = new SandboxError("storage_failed", `Cannot write ${this.#path}`, {
          cause,
          suggestion: "See that its disk has room, and start the run again: it goes on where it stopped.",
        });
      });
    });
    return event;
  }

  async sync(): Promise<void> {
    await this.#tail;
    if (this.#failure !== undefined) throw this.#failure;
    await this.#file.datasync();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tail;
    await this.#file.close();
  }
}

/** Every complete event of a journal, which may be in use or cut off. Empty when there is none. */
export async function readJournal(path: string): Promise<RunEvent[]> {
  return (await readEvents(path)).events;
}

async function readEvents(path: string): Promise<{ events: RunEvent[]; bytes: number; size: number }> {
  let content: Buffer;
  try {
    content = await readFile(path);
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return { events: [], bytes: 0, size: 0 };
    throw error;
  }
  const events: RunEvent[] = [];
  let start = 0;
  for (let end = content.indexOf("\n"); end >= 0; end = content.indexOf("\n", start)) {
    const event = parseLine(content.toString("utf8", start, end));
    if (event === undefined) break;
    events.push(event);
    start = end + 1;
  }
  return { events, bytes: start, size: content.length };
}

/** After a crash of the machine the end of the file may be anything, also zeros with a newline. */
function parseLine(line: string): RunEvent | undefined {
  try {
    const event = JSON.parse(line) as RunEvent;
    return typeof event === "object" && event !== null && typeof event.seq === "number" ? event : undefined;
  } catch {
    return undefined;
  }
}
