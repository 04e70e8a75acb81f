import { open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { bootId, hasErrno, isAlive, readStartTicks } from "@atoll/host";
import { deadlineAfter, SandboxError } from "@atoll/protocol";
import type { SandboxClient } from "../client/sandbox-client.ts";

/** A process for good: ids are reused, and begin at the same numbers after every start of the machine. */
export interface RunOwner {
  pid: number;
  startTicks: number;
  bootId: string;
}

const runLabel = "atoll.runner.run";
const ownerLabel = "atoll.runner.owner";

const cleanupTimeoutMs = 5 * 60_000;

export const thisProcess = async (): Promise<RunOwner> => ({
  pid: process.pid,
  startTicks: (await readStartTicks(process.pid)) ?? 0,
  bootId: await bootId(),
});

/** The labels of every sandbox of a run: whose they are, and which process answers for them. */
export const labelsOf = (runId: string, { pid, startTicks, bootId: boot }: RunOwner): Record<string, string> => ({
  [runLabel]: runId,
  [ownerLabel]: `${pid}.${startTicks}.${boot}`,
});

/**
 * Makes this process the only one that works on a run. A lock that a dead process has left is replaced. Rejects with
 * `in_use` while another process works on it.
 */
export async function lockRun(directory: string, owner: RunOwner): Promise<AsyncDisposable> {
  const path = join(directory, "run.lock");
  for (let tries = 0; ; tries += 1) {
    try {
      const file = await open(path, "wx", 0o600);
      await file.writeFile(JSON.stringify(owner));
      await file.close();
      return { [Symbol.asyncDispose]: () => rm(path, { force: true }) };
    } catch (error) {
      if (!hasErrno(error, "EEXIST")) throw error;
      const holder = await readFile(path, "utf8").then(parseOwner, () => undefined);
      if (tries > 0 || (holder !== undefined && (await isAlive(holder)))) {
        throw new SandboxError(
          "in_use",
          `Cannot run in ${directory}: process ${holder?.pid ?? "?"} works on this run`,
          {
            suggestion: "Wait for it to end, or choose another run id.",
          },
        );
      }
      await rm(path, { force: true });
    }
  }
}

/** Removes the sandboxes that dead processes of this run have left. Those of others are not touched. */
export async function removeLeftovers(client: SandboxClient, runId: string): Promise<string[]> {
  const signal = deadlineAfter(cleanupTimeoutMs);
  const removed: string[] = [];
  for (const { id, labels } of await client.list({ [runLabel]: runId }, signal)) {
    const [pid, startTicks, ...boot] = (labels[ownerLabel] ?? "").split(".");
    const owner = { pid: Number(pid), startTicks: Number(startTicks), bootId: boot.join(".") };
    if (labels[runLabel] !== runId || (await isAlive(owner))) continue;
    await client.remove(id, signal);
    removed.push(id);
  }
  return removed;
}

function parseOwner(text: string): RunOwner | undefined {
  try {
    const { pid, startTicks, bootId: boot } = JSON.parse(text) as Partial<RunOwner>;
    if (typeof pid !== "number" || typeof startTicks !== "number" || typeof boot !== "string") return undefined;
    return { pid, startTicks, bootId: boot };
  } catch {
    return undefined;
  }
}
