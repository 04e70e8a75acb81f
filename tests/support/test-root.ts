import { appendFile, mkdir, mkdtemp, readFile } from "node:fs/promises";
import { join } from "node:path";

/** Set once by vitest.config.ts for all workers of a run: whatever tests leave on the host is found by this path. */
export function testRoot(): string {
  const root = process.env["ATOLL_TEST_ROOT"];
  if (root === undefined) throw new Error("ATOLL_TEST_ROOT is not set: run tests through vitest");
  return root;
}

const ledger = (): string => join(testRoot(), "data-directories");

/** A new data directory, remembered for the check at the end of the run. */
export async function makeDataDir(): Promise<string> {
  await mkdir(testRoot(), { recursive: true });
  const dir = await mkdtemp(join(testRoot(), "data-"));
  await appendFile(ledger(), `${dir}\n`);
  return dir;
}

/** Every data directory of this run, also those that are gone. */
export async function usedDataDirs(): Promise<string[]> {
  const text = await readFile(ledger(), "utf8").catch(() => "");
  return text.split("\n").filter((line) => line !== "");
}
