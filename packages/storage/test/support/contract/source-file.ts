import { createHash, randomFillSync } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach } from "vitest";
import type { Checksum } from "../../../src/index.ts";

export interface SourceFile extends Checksum {
  path: string;
  content: Buffer;
}

const checksumOf = (content: Buffer): Checksum => ({
  sha256: createHash("sha256").update(content).digest("hex"),
  sizeBytes: content.length,
});

/** Gives each test a directory for its files, on the client's side. */
export function useDesk(): {
  path: (name: string) => string;
  source: (name: string, sizeBytes: number) => Promise<SourceFile>;
  names: () => Promise<string[]>;
  read: (name: string) => Promise<Buffer>;
} {
  let directory = "";
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), "atoll-store-"));
  });
  afterEach(async () => {
    await rm(directory, { recursive: true, force: true });
  });
  return {
    path: (name) => join(directory, name),
    source: async (name, sizeBytes) => {
      const content = randomFillSync(Buffer.alloc(sizeBytes));
      const path = join(directory, name);
      await writeFile(path, content);
      return { path, content, ...checksumOf(content) };
    },
    names: async () => (await readdir(directory)).toSorted(),
    read: (name) => readFile(join(directory, name)),
  };
}
