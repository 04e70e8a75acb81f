import { appendFile, mkdir, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";
import type { LiveEvent } from "@atoll/live";

/** One line of a log. */
export interface LogEntry {
  at: string;
  level: "log" | "warn" | "error";
  service?: string;
  text: string;
}

/** A log has at most two files of this size; the older one goes. */
const fileBytes = 4 * 1024 * 1024;
/** What waits for the disk while an app writes faster than that. */
const waitingBytes = 4 * 1024 * 1024;

/** The log of an app on disk: what it prints, and why its services and its process ended. */
export class AppLog {
  readonly #path: string;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #left = 0;
  #writing: Promise<void> | undefined;

  constructor(directory: string, id: string) {
    this.#path = join(directory, "logs", `${id}.log`);
  }

  /** Adds what the event has to say in a log, if anything. */
  take(event: LiveEvent): void {
    const entry = entryOf(event);
    if (entry !== undefined) this.#add(entry);
  }

  /** All that is kept, the oldest first. */
  async read(): Promise<LogEntry[]> {
    await this.#writing;
    const texts = await Promise.all([`${this.#path}.1`, this.#path].map((path) => readIfThere(path)));
    const lines = texts.join("").split("\n");
    // A crash can leave a part of a line.
    return lines.flatMap((line) => (line.endsWith("}") ? [JSON.parse(line) as LogEntry] : []));
  }

  async remove(): Promise<void> {
    await this.#writing;
    await rm(this.#path, { force: true });
    await rm(`${this.#path}.1`, { force: true });
  }

  /** Resolves when everything is on disk. */
  async flush(): Promise<void> {
    await this.#writing;
  }

  #add(entry: LogEntry): void {
    const line = `${JSON.stringify(entry)}\n`;
    if (this.#waitingBytes + line.length > waitingBytes) {
      this.#left += 1;
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += line.length;
    this.#writing ??= this.#write();
  }

  async #write(): Promise<void> {
    // A full disk loses lines of a log, and nothing else.
    const ignore = (): void => undefined;
    await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 }).catch(ignore);
    while (this.#waiting.length > 0) {
      const text = this.#waiting.join("");
      this.#waiting = [];
      this.#waitingBytes = 0;
      await appendFile(this.#path, text, { mode: 0o600 }).catch(ignore);
      const size = await stat(this.#path).then((found) => found.size, ignore);
      if (size !== undefined && size > fileBytes) await rename(this.#path, `${this.#path}.1`).catch(ignore);
      const left = this.#left;
      this.#left = 0;
      if (left > 0) this.#add(entryOfLoss(left));
    }
    this.#writing = undefined;
  }
}

export function entryOf(event: LiveEvent): LogEntry | undefined {
  const { at } = event;
  // oxlint-disable-next-line typescript/switch-exhaustiveness-check -- the others are steps, which `watch` shows
  switch (event.type) {
    case "log": {
      const { level, text, service } = event;
      return { at, level, ...(service === undefined ? {} : { service }), text };
    }
    case "service.crash": {
      const { service, reason, stack } = event;
      return { at, level: "error", service, text: `crashed: ${stack ?? reason}` };
    }
    case "process.end":
      return { at, level: "error", text: `its process ended: ${event.reason}` };
    case "reload.failed":
      return { at, level: "error", text: `a reload failed: ${event.reason}` };
    case "rollback":
      return { at, level: "warn", text: `generation ${event.from} went back to ${event.to}: ${event.reason}` };
    default:
      return undefined;
  }
}

const entryOfLoss = (lines: number): LogEntry => ({
  at: new Date().toISOString(),
  level: "warn",
  text: `${lines} lines were left out: the app writes faster than the disk`,
});

async function readIfThere(path: string): Promise<string> {
  return readFile(path, "utf8").catch((error: unknown) => {
    if (hasErrno(error, "ENOENT")) return "";
    throw error;
  });
}
