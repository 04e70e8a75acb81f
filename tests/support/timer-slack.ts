import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** The timer slack that the kernel gives to a thread by default. */
export const ordinarySlackNs = 50_000;

/** Returns the different timer slacks, in ns, of the threads of a gVisor sandbox's kernel. */
export function timerSlacksOf(dataDir: string, { id }: { id: string }): number[] {
  const directory = join(dataDir, "sandboxes", id);
  const record = JSON.parse(readFileSync(join(directory, "record.json"), "utf8")) as { container: { id: string } };
  const container = record.container.id;
  const stateFile = join(directory, "run", container, "state", `${container}_sandbox:${container}.state`);
  const { sandbox } = JSON.parse(readFileSync(stateFile, "utf8")) as { sandbox: { pid: number } };
  const threads = readdirSync(`/proc/${sandbox.pid}/task`);
  return [...new Set(threads.map(slackOf))].filter((slack) => slack !== undefined);
}

/** Returns undefined if the thread has ended. */
function slackOf(thread: string): number | undefined {
  try {
    return Number(readFileSync(`/proc/${thread}/timerslack_ns`, "latin1"));
  } catch {
    return undefined;
  }
}
