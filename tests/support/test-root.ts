import { appendFile, mkdir, mkdtemp, readFile } from "node:fs/promises";
import { join } from "node:path";

/** Returns the directory for everything that tests create on the host. vitest.config.ts sets it for all workers. */
export function testRoot(): string {
  const root = process.env["ATOLL_TEST_ROOT"];
  if (root === undefined) throw new Error("ATOLL_TEST_ROOT is not set: run tests through vitest");
  return root;
}

const ledger = (): string => join(testRoot(), "data-directories");

/** Makes a data directory and records it for the check at the end of the run. */
export async function makeDataDir(): Promise<string> {
  await mkdir(testRoot(), { recursive: true });
  const dir = await mkdtemp(join(testRoot(), "data-"));
  await appendFile(ledger(), `${dir}\n`);
  return dir;
}

/** Returns every data directory of this run, including those that were removed. */
export async function usedDataDirs(): Promise<string[]> {
  const text = await readFile(ledger(), "utf8").catch(() => "");
  return text.split("\n").filter((line) => line !== "");
}
