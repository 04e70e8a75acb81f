import { execFileSync, spawnSync } from "node:child_process";
import { readTar, type TarEntry } from "@atoll/engine";
import { describe, expect, test } from "vitest";
import { endOfArchive, entryHeader, padding, type PlainEntry } from "../../src/archives/tar-blocks.ts";

const named = { mode: 0o640, uid: 0, gid: 0, mtimeSeconds: 1_600_000_000 };
const none: AsyncIterable<Buffer> = {
  [Symbol.asyncIterator]: () => ({ next: async () => ({ done: true, value: undefined }) }),
};
const file = (path: string, size: number): PlainEntry => ({ ...named, path, kind: "file", size, content: none });

async function readBack(archive: Buffer): Promise<TarEntry[]> {
  const entries: TarEntry[] = [];
  async function* chunks(): AsyncGenerator<Buffer> {
    yield archive;
  }
  for await (const entry of readTar(chunks())) entries.push(entry);
  return entries;
}

describe("a header", () => {
  const entries: PlainEntry[] = [
    file("plain", 0),
    file("x".repeat(99), 0),
    file("x".repeat(100), 0),
    file(`${"deep/".repeat(60)}ünïcode`, 0),
    { ...named, path: "dir", kind: "directory" },
    { ...named, path: "link", kind: "link", target: "../anywhere" },
    { ...named, path: `l/${"y".repeat(120)}`, kind: "link", target: "z".repeat(150) },
    { ...named, path: "hard", kind: "hard-link", target: "plain" },
    { ...named, path: "setuid", kind: "directory", mode: 0o4755 },
  ];

  test.for(entries)("keeps the entry that it was made from: $path", async (entry) => {
    const [read] = await readBack(Buffer.concat([entryHeader(entry, entry.path), endOfArchive]));
    const { content: _, ...expected } = { content: undefined, ...entry };
    expect(read).toMatchObject(expected);
  });

  test("is understood by the system's tar", () => {
    const archive = Buffer.concat([...entries.map((entry) => entryHeader(entry, entry.path)), endOfArchive]);
    const listed = execFileSync("tar", ["-tf", "-"], {
      input: archive,
      env: { LC_ALL: "C.UTF-8", PATH: "/usr/bin:/bin" },
    });
    expect(listed.toString().trim().split("\n")).toEqual(entries.map(({ path }) => path));
  });

  test.for([8 * 1024 ** 3 - 1, 8 * 1024 ** 3, 2 ** 45])("has room for a size of %i", (size) => {
    // Tar lists the entry before it finds that the content is missing.
    const { stdout } = spawnSync("tar", ["-tvf", "-"], { input: entryHeader(file("large", size), "large") });
    expect(stdout.toString()).toContain(` ${size} `);
  });
});

test.for([
  [0, 0],
  [1, 511],
  [511, 1],
  [512, 0],
  [513, 511],
] as const)("a content of %i bytes is padded with %i", ([size, filled]) => {
  expect(padding(size).byteLength).toBe(filled);
});
