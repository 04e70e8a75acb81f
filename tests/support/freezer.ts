import { existsSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox } from "@atoll/engine";
import { pollUntil } from "@atoll/host";

const patienceMs = 60_000;

/** Returns whether every process of a cgroup, of either version, is frozen. */
export function isFrozen(group: string): boolean {
  const v1 = join(group, "freezer.state");
  if (existsSync(v1)) return readFileSync(v1, "utf8").trim() === "FROZEN";
  return /^frozen 1$/m.test(readFileSync(join(group, "cgroup.events"), "utf8"));
}

/** Returns the freezer cgroup of the container in which a sandbox of this data directory runs. */
export async function freezerOf(dataDir: string, sandboxId: string): Promise<string> {
  const record = JSON.parse(await readFile(join(dataDir, "sandboxes", sandboxId, "record.json"), "utf8")) as {
    container: { pid: number };
  };
  const words = (await readFile(`/proc/${record.container.pid}/cmdline`, "utf8")).split("\0");
  return words[words.indexOf("--freezer") + 1] ?? "";
}

export async function untilFrozen(dataDir: string, { id }: Pick<Sandbox, "id"> | { id: string }): Promise<void> {
  const group = await freezerOf(dataDir, id);
  if (!(await pollUntil(() => isFrozen(group), { deadlineMs: patienceMs }))) throw new Error(`${group} is not frozen`);
}
