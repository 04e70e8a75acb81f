import { constants } from "node:fs";
import { open, readFile, writeFile } from "node:fs/promises";
import { hasErrno, pollUntil } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { RunLayout } from "../store/layout.ts";

/**
 * Until when a container may run, on the clock of `uptimeMs`. `still` means that the deadline is not in force for now,
 * because everything in the container has been stopped by other means and stays stopped until the next order.
 */
export type DeadlineOrder = { kind: "until" | "still"; uptimeMs: number } | { kind: "never" };

/** The format is in docs/guest-protocol.md. */
const orderPattern = /^(until|still|never) (\d{19})\n\1 \2\n/;
const seenAt = 64;
const fileBytes = 128;
/** A launcher whose container uses up its processor time gets to run once per period of the quota. */
const applyDeadlineMs = 20_000;

/**
 * The file by which a server and the launcher of a container exchange the container's deadline. It outlives servers,
 * and containers that are frozen.
 */
export class DeadlineFile {
  readonly #run: RunLayout;

  constructor(run: RunLayout) {
    this.#run = run;
  }

  /** Writes the file for a container that is about to be launched, so that it never runs without its deadline. */
  async prepare(uptimeMs: number): Promise<void> {
    const content = Buffer.alloc(fileBytes, "\n");
    content.write(format({ kind: "until", uptimeMs }));
    content.write(format({ kind: "never" }), seenAt);
    await writeFile(this.#run.deadlineFile, content, { mode: 0o600 });
  }

  /** Changes the deadline for a launcher that has started nothing yet, and reads the file before it does. */
  async replace(uptimeMs: number): Promise<void> {
    // Without a deadline before, the launcher makes the file, perhaps only after this call.
    await overwrite(this.#run.deadlineFile, format({ kind: "until", uptimeMs })).catch((error: unknown) => {
      if (!hasErrno(error, "ENOENT")) throw error;
    });
  }

  /** Returns the last order, from whichever server. */
  async read(): Promise<DeadlineOrder> {
    const content = await readFile(this.#run.deadlineFile, "latin1").catch((error: unknown) => {
      // The container was started by a server that knew of no deadlines, or it is gone.
      if (hasErrno(error, "ENOENT")) return format({ kind: "never" });
      throw error;
    });
    const order = parse(content);
    if (order === undefined) throw new SandboxError("internal", `Cannot read ${this.#run.deadlineFile}`);
    return order;
  }

  /** Resolves when the launcher applies the order. Needs no space on the disk. */
  async order(order: DeadlineOrder): Promise<void> {
    const text = format(order);
    try {
      await overwrite(this.#run.deadlineFile, text);
      await wakeLauncher(this.#run.wakeFifo);
    } catch (error) {
      throw explained(error);
    }
    let seen: string | undefined;
    const isHeeded = await pollUntil(
      async () => {
        seen = await readFile(this.#run.deadlineFile, "latin1").catch(() => undefined);
        return seen === undefined || seen.startsWith(text, seenAt);
      },
      { deadlineMs: applyDeadlineMs },
    );
    if (isHeeded && seen !== undefined) return;
    if (seen === undefined) throw ended();
    throw new SandboxError("timed_out", "Cannot set the deadline of a container: its launcher does not apply it", {
      suggestion: "The machine is overloaded, or has no freezer for cgroups: run `atoll doctor`.",
    });
  }
}

/** The order is written twice, so that a reader in between sees two different ones. */
function format(order: DeadlineOrder): string {
  const uptimeMs = order.kind === "never" ? 0 : Math.max(0, Math.floor(order.uptimeMs));
  return `${order.kind} ${String(uptimeMs).padStart(19, "0")}\n`.repeat(2);
}

function parse(content: string): DeadlineOrder | undefined {
  const [, kind, digits] = orderPattern.exec(content) ?? [];
  if (kind === "never") return { kind };
  if (kind === "until" || kind === "still") return { kind, uptimeMs: Number(digits) };
  return undefined;
}

async function overwrite(path: string, text: string): Promise<void> {
  const file = await open(path, "r+");
  try {
    await file.write(text, 0);
  } finally {
    await file.close();
  }
}

async function wakeLauncher(path: string): Promise<void> {
  const fifo = await open(path, constants.O_WRONLY | constants.O_NONBLOCK);
  try {
    await fifo.write("\n");
  } catch (error) {
    // A full FIFO wakes the launcher just as well.
    if (!hasErrno(error, "EAGAIN")) throw error;
  } finally {
    await fifo.close();
  }
}

function explained(error: unknown): unknown {
  // No launcher has the FIFO open.
  if (hasErrno(error, "ENXIO")) return ended();
  if (!hasErrno(error, "ENOENT")) return error;
  return new SandboxError("unsupported", "Cannot set the deadline of a container that was started without one", {
    suggestion: "It comes from an older version: pause and resume it first.",
    cause: error,
  });
}

function ended(): SandboxError {
  return new SandboxError("sandbox_ended", "Cannot set the deadline of a container: it has ended");
}
