import { execFileSync } from "node:child_process";
import {
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { encodeHeader, padding, type Entry } from "../../src/archive/header.ts";
import { pack } from "../../src/archive/pack.ts";
import { unpack } from "../../src/archive/unpack.ts";

let root: string;
let skipped: string[];
const { signal } = new AbortController();
const options = { signal, onSkipped: (path: string) => void skipped.push(path) };

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "atoll-archive-"));
  skipped = [];
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

async function makeTree(): Promise<string> {
  const source = join(root, "source");
  await mkdir(join(source, "empty"), { recursive: true });
  await mkdir(join(source, "n".repeat(120), "deeper"), { recursive: true });
  await writeFile(join(source, "n".repeat(120), "deeper", "ünï.txt"), "deep");
  await writeFile(join(source, "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
  await writeFile(join(source, "large.bin"), Buffer.alloc(700_001, 7));
  await writeFile(join(source, "zero"), "");
  await symlink("run.sh", join(source, "link"));
  await utimes(join(source, "run.sh"), 1_000_000, 1_000_000.5);
  return source;
}

async function listing(directory: string): Promise<unknown[]> {
  const names = await readdir(directory, { recursive: true });
  return Promise.all(
    names.toSorted().map(async (name) => {
      const path = join(directory, name);
      const stats = await lstat(path);
      const content = stats.isFile() ? (await readFile(path)).toString("base64") : undefined;
      const target = stats.isSymbolicLink() ? await readlink(path) : undefined;
      return {
        name,
        mode: stats.mode,
        content,
        target,
        mtimeMs: stats.isFile() ? Math.round(stats.mtimeMs) : undefined,
      };
    }),
  );
}

/** Cuts the bytes into pieces that do not end where blocks end, as a network does. */
async function* inPieces(bytes: Buffer, size: number): AsyncGenerator<Uint8Array, void, undefined> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

async function collect(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source) pieces.push(piece);
  return Buffer.concat(pieces);
}

describe("a directory", () => {
  test.for([1, 511, 512, 65_536])("is the same after packing and unpacking in pieces of %d bytes", async (size) => {
    const source = await makeTree();
    const target = join(root, "target");
    if (size === 1) await rm(join(source, "large.bin"));
    await unpack(inPieces(await collect(pack(source, options)), size), target, options);
    expect(await listing(target)).toEqual(await listing(source));
  });

  test("is packed so that tar can read it", async () => {
    const source = await makeTree();
    const target = join(root, "target");
    await mkdir(target);
    execFileSync("tar", ["x", "-C", target], { input: await collect(pack(source, options)) });
    expect(await listing(target)).toEqual(await listing(source));
  });

  test.for(["--format=gnu", "--format=pax", "--format=ustar"])("is unpacked as tar %s wrote it", async (format) => {
    const source = await makeTree();
    if (format === "--format=ustar") await rm(join(source, "n".repeat(120)), { recursive: true });
    await utimes(join(source, "run.sh"), 1_000_000, 1_000_000);
    const archive = execFileSync("tar", ["c", format, "-C", source, "."], { maxBuffer: 1 << 26 });
    const target = join(root, "target");
    await unpack(inPieces(archive, 10_000), target, options);
    const withoutTimes = (rows: unknown[]) => rows.map((row) => ({ ...(row as object), mtimeMs: undefined }));
    expect(withoutTimes(await listing(target))).toEqual(withoutTimes(await listing(source)));
  });

  test("leaves out and reports sockets, pipes and devices", async () => {
    const source = join(root, "source");
    await mkdir(source);
    execFileSync("bash", ["-c", `mkfifo "$0"`, join(source, "pipe")]);
    await collect(pack(source, options));
    expect(skipped).toEqual(["pipe"]);
    const archive = execFileSync("tar", ["c", "-C", source, "."]);
    expect(await unpack(inPieces(archive, 512), join(root, "target"), options)).toEqual({ files: 0, bytes: 0 });
    expect(skipped).toEqual(["pipe", "pipe"]);
  });

  test.for(["--format=gnu", "--format=pax", "--format=ustar"])("keeps hard links that tar %s wrote", async (format) => {
    const source = join(root, "source");
    await mkdir(join(source, "deep", "er"), { recursive: true });
    await writeFile(join(source, "a"), "shared", { mode: 0o755 });
    await symlink("../../a", join(source, "deep", "er", "way"));
    await link(join(source, "a"), join(source, "deep", "b"));
    await link(join(source, "a"), join(source, "c"));
    await link(join(source, "deep", "er", "way"), join(source, "deep", "er", "way-too"));
    const archive = execFileSync("tar", ["c", format, "--sort=name", "-C", source, "."]);
    const target = join(root, "target");
    // The second round unpacks over the files of the first.
    for (let round = 0; round < 2; round += 1) {
      expect(await unpack(inPieces(archive, 512), target, options)).toEqual({ files: 7, bytes: 6 });
      const withoutTimes = (rows: unknown[]) => rows.map((row) => ({ ...(row as object), mtimeMs: undefined }));
      expect(withoutTimes(await listing(target))).toEqual(withoutTimes(await listing(source)));
      expect((await lstat(join(target, "a"))).nlink).toBe(3);
    }
    expect(skipped).toEqual([]);
  });

  test("keeps a file that is a hard link to itself", async () => {
    const target = join(root, "target");
    const entries = [
      { path: "a", content: "here" },
      { path: "a", type: "hard-link", target: "./a" },
    ] as const;
    await unpack(inPieces(archiveOf(...entries), 512), target, options);
    expect(await readFile(join(target, "a"), "utf8")).toBe("here");
  });

  test("reports a hard link whose file is missing", async () => {
    const archive = archiveOf({ path: "b", type: "hard-link", target: "missing/a" });
    expect(await unpack(inPieces(archive, 512), join(root, "target"), options)).toEqual({ files: 0, bytes: 0 });
    expect(skipped).toEqual(["b -> missing/a"]);
  });
});

function archiveOf(...entries: (Partial<Entry> & { path: string; content?: string })[]): Buffer {
  const parts = entries.flatMap(({ content = "", ...entry }) => {
    const body = Buffer.from(content);
    const whole: Entry = { type: "file", mode: 0o644, modifiedAtMs: 0, sizeBytes: body.length, ...entry };
    return [encodeHeader(whole), body, padding(body.length)];
  });
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

test("an archive that ends early leaves no incomplete file, and the old one stays", async () => {
  const target = join(root, "target");
  await mkdir(target);
  await writeFile(join(target, "file"), "the old one");
  const archive = archiveOf({ path: "file", content: "n".repeat(5_000) });
  const broken = unpack(inPieces(archive.subarray(0, 3_000), 512), target, options);
  await expect(broken).rejects.toThrow("ends too early");
  expect(await readdir(target)).toEqual(["file"]);
  expect(await readFile(join(target, "file"), "utf8")).toBe("the old one");
});

describe("a malicious archive", () => {
  const unpackThis = async (archive: Buffer) => unpack(inPieces(archive, 4096), join(root, "target"), options);

  test.for(["../escaped", "a/../../escaped", "/escaped"])("cannot write to %s", async (path) => {
    await expect(unpackThis(archiveOf({ path, content: "x" }))).rejects.toThrow("leads out of the directory");
    expect(await readdir(root)).not.toContain("escaped");
  });

  test.for(["/etc", "..", "a/../..", "inner/../.."])("cannot leave a link to %s", async (target) => {
    await unpackThis(archiveOf({ path: "link", type: "link", target }));
    expect(await readdir(join(root, "target"))).toEqual([]);
    expect(skipped).toEqual([`link -> ${target}`]);
  });

  test.for(["../victim", "a/../../victim", "/etc/passwd"])("cannot get a hard link to %s", async (target) => {
    await writeFile(join(root, "victim"), "mine");
    const archive = archiveOf({ path: "link", type: "hard-link", target });
    await expect(unpackThis(archive)).rejects.toThrow("leads out of the directory");
    expect(await readdir(join(root, "target"))).toEqual([]);
  });

  test("cannot get a hard link to a file behind a link", async () => {
    await mkdir(join(root, "elsewhere"));
    await writeFile(join(root, "elsewhere", "victim"), "mine");
    await mkdir(join(root, "target"));
    await symlink(join(root, "elsewhere"), join(root, "target", "way"));
    await symlink(join(root, "elsewhere", "victim"), join(root, "target", "file"));
    await unpackThis(
      archiveOf(
        { path: "one", type: "hard-link", target: "way/victim" },
        { path: "two", type: "hard-link", target: "file" },
      ),
    );
    expect(await readdir(join(root, "target"))).toEqual(["file", "way"]);
    expect(skipped).toEqual(["one -> way/victim", `two -> ${join(root, "elsewhere", "victim")}`]);
  });

  test("cannot move a link by a hard link to where it leads out", async () => {
    await unpackThis(
      archiveOf({ path: "a/b/up", type: "link", target: "../.." }, { path: "up", type: "hard-link", target: "a/b/up" }),
    );
    expect(await readdir(join(root, "target"))).toEqual(["a"]);
    expect(skipped).toEqual(["up -> ../.."]);
  });

  test("cannot lead out by a link through another link", async () => {
    await unpackThis(
      archiveOf({ path: "a/b/up", type: "link", target: "../.." }, { path: "out", type: "link", target: "a/b/up/.." }),
    );
    expect(await readdir(join(root, "target"))).toEqual(["a"]);
  });

  test("cannot write through a link that it made", async () => {
    await mkdir(join(root, "elsewhere"));
    await mkdir(join(root, "target"));
    await symlink(join(root, "elsewhere"), join(root, "target", "way"));
    await expect(unpackThis(archiveOf({ path: "way/file", content: "x" }))).rejects.toThrow("is not a directory");
    expect(await readdir(join(root, "elsewhere"))).toEqual([]);
  });

  test("cannot write to the target of a link at its path", async () => {
    await writeFile(join(root, "victim"), "mine");
    await mkdir(join(root, "target"));
    await symlink(join(root, "victim"), join(root, "target", "file"));
    await unpackThis(archiveOf({ path: "file", content: "theirs" }));
    expect(await readFile(join(root, "victim"), "utf8")).toBe("mine");
    expect(await readFile(join(root, "target", "file"), "utf8")).toBe("theirs");
  });

  test("cannot leave a set-user-id program", async () => {
    await unpackThis(archiveOf({ path: "su", content: "x", mode: 0o4755 }));
    expect((await lstat(join(root, "target", "su"))).mode & 0o7777).toBe(0o755);
  });

  test("is refused when it ends early or was changed", async () => {
    const archive = archiveOf({ path: "file", content: "content" });
    await expect(unpackThis(archive.subarray(0, archive.length - 1024))).rejects.toThrow("ends too early");
    await expect(unpackThis(archive.subarray(0, 1540))).rejects.toThrow("ends too early");
    archive[1030] = 0x7a;
    await expect(unpackThis(archive)).rejects.toThrow("damaged");
  });
});

describe("an archive of one thing", () => {
  const packed = async (...args: string[]): Promise<AsyncGenerator<Uint8Array, void, undefined>> =>
    inPieces(execFileSync("tar", ["--format=posix", "--create", "--file", "-", "--directory", root, ...args]), 512);

  test("becomes the directory that is named, whatever its own name is", async () => {
    await makeTree();
    await link(join(root, "source", "run.sh"), join(root, "source", "hard"));
    await unpack(await packed("source"), join(root, "target"), { ...options, hasTop: true });
    expect(await listing(join(root, "target"))).toEqual(await listing(join(root, "source")));
    expect(skipped).toEqual([]);
  });

  test("becomes the file that is named, beside what is there", async () => {
    await writeFile(join(root, "one"), "content");
    await writeFile(join(root, "beside"), "stays");
    await unpack(await packed("one"), join(root, "two"), { ...options, hasTop: true });
    expect(await readFile(join(root, "two"), "utf8")).toBe("content");
    expect(await readFile(join(root, "beside"), "utf8")).toBe("stays");
  });

  test("that is a link is left out, and so is a link that leads out of its directory", async () => {
    await symlink("source", join(root, "link"));
    await mkdir(join(root, "source"));
    await symlink("../beside", join(root, "source", "out"));
    await writeFile(join(root, "beside"), "not to be reached");
    await unpack(await packed("link"), join(root, "target"), { ...options, hasTop: true });
    await unpack(await packed("source"), join(root, "target"), { ...options, hasTop: true });
    expect(skipped).toEqual(["", "out -> ../beside"]);
    expect(await readdir(join(root, "target"))).toEqual([]);
  });

  test("of two things is refused", async () => {
    await writeFile(join(root, "a"), "a");
    await writeFile(join(root, "b"), "b");
    const unpacking = unpack(await packed("a", "b"), join(root, "target"), { ...options, hasTop: true });
    await expect(unpacking).rejects.toMatchObject({ code: "invalid_argument" });
  });
});
