import { createHash, randomBytes } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach } from "vitest";
import { makeDataDir } from "../test-root.ts";

export interface RandomFile {
  path: string;
  content: Buffer;
  sha256: string;
  sizeBytes: number;
}

/** Returns a function that makes random files, which are removed after the test. */
export function useRandomFiles(): (sizeBytes: number) => Promise<RandomFile> {
  const directories: string[] = [];
  afterEach(async () => {
    await Promise.all(directories.splice(0).map((directory) => rm(directory, { recursive: true })));
  });
  return async (sizeBytes) => {
    const directory = await makeDataDir();
    directories.push(directory);
    const content = randomBytes(sizeBytes);
    const path = join(directory, "file");
    await writeFile(path, content);
    return { path, content, sha256: createHash("sha256").update(content).digest("hex"), sizeBytes };
  };
}
