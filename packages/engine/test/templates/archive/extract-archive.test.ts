import { execFileSync } from "node:child_process";
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { isSandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { extractArchive, type ExtractOptions } from "../../../src/templates/archive/extract-archive.ts";
import { forgeTar, paxRecords } from "./forge-tar.ts";

let base: string;
let target: string;
beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "atoll-extract-"));
  target = join(base, "target");
  await mkdir(target);
  await writeFile(join(base, "outside"), "untouched");
});
afterEach(() => rm(base, { recursive: true }));

async function extract(archive: Buffer, options: Partial<ExtractOptions> = {}): Promise<void> {
  await writeFile(join(base, "archive"), archive);
  await extractArchive(join(base, "archive"), target, {
    signal: new AbortController().signal,
    maxBytes: 10_000_000,
    maxEntries: 1000,
    ...options,
  });
}

const compressWith = (command: string, input: Buffer): Buffer => execFileSync("sh", ["-c", command], { input });

const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "resolved",
    (error: unknown) => (isSandboxError(error) ? error.code : error),
  );

describe("an honest archive", () => {
  test("comes out with names, contents, owners, modes, times and links", async () => {
    await extract(
      forgeTar(
        { path: "./", type: "5", mode: 0o700 },
        { path: "./bin/", type: "5", mode: 0o755 },
        { path: "./bin/su", content: "#!", mode: 0o4755, uid: 0, gid: 7 },
        { path: "./bin/same", type: "1", linkPath: "./bin/su" },
        { path: "./etc/passwd", content: "root" },
        { path: "./sh", type: "2", linkPath: "/bin/su" },
        { path: "./var/tmp/", type: "5", mode: 0o1777, uid: 1000, gid: 1000 },
      ),
    );
    const su = await lstat(join(target, "bin/su"));
    expect([su.mode & 0o7777, su.uid, su.gid, su.nlink, su.mtimeMs]).toEqual([0o4755, 0, 7, 2, 1e12]);
    expect((await lstat(join(target, "bin/same"))).ino).toBe(su.ino);
    expect(await readFile(join(target, "etc/passwd"), "utf8")).toBe("root");
    expect(await readlink(join(target, "sh"))).toBe("/bin/su");
    const tmp = await lstat(join(target, "var/tmp"));
    expect([tmp.mode & 0o7777, tmp.uid]).toEqual([0o1777, 1000]);
  });

  test.for([
    { format: "tar", compress: (bytes: Buffer) => bytes },
    { format: "gzip", compress: (bytes: Buffer) => gzipSync(bytes) },
    { format: "xz", compress: (bytes: Buffer) => compressWith("xz -c", bytes) },
    { format: "zstd", compress: (bytes: Buffer) => compressWith("zstd -cq", bytes) },
    { format: "bzip2", compress: (bytes: Buffer) => compressWith("bzip2 -c", bytes) },
  ])("can be compressed: $format", async ({ compress }) => {
    await extract(compress(forgeTar({ path: "file", content: "x".repeat(100_000) })));
    expect((await readFile(join(target, "file"), "utf8")).length).toBe(100_000);
    const damaged = compress(forgeTar({ path: "other", content: "x".repeat(100_000) }));
    expect(await codeOf(extract(damaged.subarray(0, damaged.length - 20 - 1024)))).toBe("invalid_argument");
  });

  test("a later entry takes the place of an earlier one", async () => {
    await extract(
      forgeTar(
        { path: "a", content: "1" },
        { path: "a", content: "2" },
        { path: "l", type: "2", linkPath: "../outside" },
        { path: "l", content: "3" },
      ),
    );
    expect(await readFile(join(target, "a"), "utf8")).toBe("2");
    expect(await readFile(join(target, "l"), "utf8")).toBe("3");
  });

  test("device nodes in /dev are left out", async () => {
    await extract(
      forgeTar(
        { path: "dev/", type: "5" },
        { path: "dev/null", type: "3" },
        { path: "run/initctl", type: "6" },
        { path: "a" },
      ),
    );
    expect(await readdir(join(target, "dev"))).toEqual([]);
    expect((await readdir(target)).toSorted()).toEqual(["a", "dev"]);
  });
});

describe("tricks that lead out of the directory", () => {
  const escape = { path: "link", type: "2", linkPath: ".." };
  test.for([
    { trick: "..", entries: [{ path: "../outside", content: "!" }] },
    { trick: "a directory ..", entries: [{ path: "..", type: "5", mode: 0o777 }] },
    {
      trick: ".. in the middle",
      entries: [
        { path: "a/", type: "5" },
        { path: "a/../../outside", content: "!" },
      ],
    },
    { trick: "an absolute name", entries: [{ path: "/etc/outside", content: "!" }] },
    {
      trick: "a name in an extended header",
      entries: [
        { type: "x", content: paxRecords({ path: "../outside" }) },
        { path: "a", content: "!" },
      ],
    },
    {
      trick: "a long name",
      entries: [
        { type: "L", content: "../outside\0" },
        { path: "a", content: "!" },
      ],
    },
    { trick: "a file below a link", entries: [escape, { path: "link/outside", content: "!" }] },
    { trick: "a directory below a link", entries: [escape, { path: "link/made/", type: "5" }] },
    { trick: "a link below a link", entries: [escape, { path: "link/made", type: "2", linkPath: "x" }] },
    { trick: "a file deep below a link", entries: [escape, { path: "link/a/b/c", content: "!" }] },
    { trick: "a file below a file", entries: [{ path: "a" }, { path: "a/b", content: "!" }] },
    { trick: "a hard link to ..", entries: [{ path: "a", type: "1", linkPath: "../outside" }] },
    { trick: "a hard link to an absolute name", entries: [{ path: "a", type: "1", linkPath: "/etc/passwd" }] },
    { trick: "a hard link through a link", entries: [escape, { path: "a", type: "1", linkPath: "link/outside" }] },
    {
      trick: "a hard link to a link",
      entries: [
        { path: "l", type: "2", linkPath: "../outside" },
        { path: "a", type: "1", linkPath: "l" },
      ],
    },
    {
      trick: "a hard link to a directory",
      entries: [
        { path: "d/", type: "5" },
        { path: "a", type: "1", linkPath: "d" },
      ],
    },
    { trick: "a hard link to nothing", entries: [{ path: "a", type: "1", linkPath: "later" }, { path: "later" }] },
    { trick: "a device node", entries: [{ path: "sda", type: "4" }] },
    {
      trick: "a device node that is called like a directory below /dev",
      entries: [{ path: "lib/dev/sda", type: "4" }],
    },
    { trick: "a FIFO", entries: [{ path: "pipe", type: "6" }] },
    {
      trick: "a directory that becomes a link",
      entries: [
        { path: "d/", type: "5" },
        { path: "d", type: "2", linkPath: ".." },
        { path: "d/outside", content: "!" },
      ],
    },
    { trick: "a root that is a file", entries: [{ path: "./", type: "2", linkPath: ".." }] },
    { trick: "a name that is too long", entries: [{ type: "L", content: `${"a/".repeat(1500)}b` }, { path: "a" }] },
    { trick: "a part of a name that is too long", entries: [{ type: "L", content: "a".repeat(300) }, { path: "a" }] },
    { trick: "a NUL in a name", entries: [{ type: "x", content: paxRecords({ path: "a\0b" }) }, { path: "a" }] },
    { trick: "a link to nowhere", entries: [{ path: "a", type: "2", linkPath: "" }] },
  ])("$trick is refused", async ({ entries }) => {
    expect(await codeOf(extract(forgeTar(...entries)))).toBe("invalid_argument");
    expect((await readdir(base)).toSorted()).toEqual(["archive", "outside", "target"]);
    expect(await readFile(join(base, "outside"), "utf8")).toBe("untouched");
    expect((await lstat(join(base, "outside"))).nlink).toBe(1);
  });

  test("a directory that takes a link's place is a directory", async () => {
    await extract(forgeTar(escape, { path: "link/", type: "5" }, { path: "link/outside", content: "inside" }));
    expect(await readFile(join(target, "link/outside"), "utf8")).toBe("inside");
  });
});

describe("limits", () => {
  test("more bytes than allowed are refused before they are written", async () => {
    const archive = forgeTar({ path: "small", content: "x" }, { path: "large", size: 20_000_000 });
    expect(await codeOf(extract(archive))).toBe("limit_reached");
    expect(await readdir(target)).toEqual(["small"]);
  });

  test("many small files are counted together", async () => {
    const archive = forgeTar(
      ...Array.from({ length: 20 }, (_, index) => ({ path: `f${index}`, content: "x".repeat(100) })),
    );
    expect(await codeOf(extract(archive, { maxBytes: 1000 }))).toBe("limit_reached");
  });

  test("more entries than allowed are refused", async () => {
    const archive = forgeTar(...Array.from({ length: 20 }, (_, index) => ({ path: `f${index}` })));
    expect(await codeOf(extract(archive, { maxEntries: 19 }))).toBe("limit_reached");
  });

  test("a small archive that becomes a large one is stopped", async () => {
    const bomb = gzipSync(forgeTar({ path: "zeros", content: Buffer.alloc(50_000_000) }));
    expect(bomb.length).toBeLessThan(100_000);
    expect(await codeOf(extract(bomb))).toBe("limit_reached");
  });

  test("an abort ends it with its own reason", async () => {
    const archive = compressWith("xz -c", forgeTar({ path: "a", content: Buffer.alloc(1_000_000) }));
    const controller = new AbortController();
    const extracted = extract(archive, { signal: controller.signal });
    controller.abort(new Error("no longer wanted"));
    await expect(extracted).rejects.toThrow("no longer wanted");
  });
});

test("what is not there or not an archive is an invalid argument", async () => {
  const options = { signal: new AbortController().signal, maxBytes: 1, maxEntries: 1 };
  expect(await codeOf(extractArchive(join(base, "none"), target, options))).toBe("invalid_argument");
  expect(await codeOf(extract(Buffer.from("hello")))).toBe("invalid_argument");
});
