import { execFileSync } from "node:child_process";
import { link, mkdir, mkdtemp, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { readTar } from "../../../src/templates/archive/read-tar.ts";
import { MalformedArchive } from "../../../src/templates/archive/tar-header.ts";
import { forgeEntry, forgeTar, paxRecords } from "./forge-tar.ts";

/** Yields the bytes in pieces of an awkward size. */
async function* pieces(bytes: Buffer, size = 700): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

interface Listed {
  kind: string;
  path: string;
  text?: string;
  target?: string;
}

async function list(archive: Buffer): Promise<Listed[]> {
  const found: Listed[] = [];
  for await (const entry of readTar(pieces(archive))) {
    const listed: Listed = { kind: entry.kind, path: entry.path };
    if (entry.kind === "file") {
      const parts: Buffer[] = [];
      for await (const part of entry.content) parts.push(part);
      listed.text = Buffer.concat(parts).toString();
    }
    if (entry.kind === "link" || entry.kind === "hard-link") listed.target = entry.target;
    found.push(listed);
  }
  return found;
}

describe("archives of the system's own tar", () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "atoll-tar-"));
  });
  afterEach(() => rm(root, { recursive: true }));

  test.for(["v7", "oldgnu", "gnu", "ustar", "pax"])("are read in the format %s", async (format) => {
    // Long names do not fit into the older headers.
    const long = format === "gnu" || format === "oldgnu" || format === "pax" ? "n".repeat(180) : "n".repeat(40);
    await mkdir(join(root, "dir"));
    await writeFile(join(root, "dir/file"), "hello");
    await writeFile(join(root, "dir/empty"), "");
    await writeFile(join(root, `dir/${long}`), "x".repeat(1500));
    await symlink(long, join(root, "dir/link"));
    await link(join(root, "dir/file"), join(root, "dir/same"));
    const names = ["dir/file", "dir/empty", `dir/${long}`, "dir/link", "dir/same"];
    const archive = execFileSync("tar", [
      "-cf",
      "-",
      `--format=${format}`,
      "-C",
      root,
      "--no-recursion",
      "dir",
      ...names,
    ]);
    expect(await list(archive)).toEqual([
      { kind: "directory", path: "dir/" },
      { kind: "file", path: "dir/file", text: "hello" },
      { kind: "file", path: "dir/empty", text: "" },
      { kind: "file", path: `dir/${long}`, text: "x".repeat(1500) },
      { kind: "link", path: "dir/link", target: long },
      { kind: "hard-link", path: "dir/same", target: "dir/file" },
    ]);
  });

  test("sparse files are refused", async () => {
    await writeFile(join(root, "sparse"), "");
    await truncate(join(root, "sparse"), 10_000_000);
    for (const format of ["gnu", "pax"]) {
      const archive = execFileSync("tar", ["-cSf", "-", `--format=${format}`, "-C", root, "sparse"]);
      await expect(list(archive)).rejects.toThrow("sparse");
    }
  });
});

describe("what is read", () => {
  test("content that is not read is skipped", async () => {
    const archive = forgeTar({ path: "a", content: "x".repeat(3000) }, { path: "b", content: "b" });
    const paths: string[] = [];
    for await (const { path } of readTar(pieces(archive))) paths.push(path);
    expect(paths).toEqual(["a", "b"]);
  });

  test("content that is left half read is skipped", async () => {
    const archive = forgeTar({ path: "a", content: "x".repeat(3000) }, { path: "b" });
    const paths: string[] = [];
    for await (const entry of readTar(pieces(archive))) {
      paths.push(entry.path);
      if (entry.kind !== "file") continue;
      for await (const _ of entry.content) break;
    }
    expect(paths).toEqual(["a", "b"]);
  });

  test("a prefix is put before the name, in archives that have one", async () => {
    const archive = forgeTar({ path: "b", prefix: "a" }, { path: "b", prefix: "a", magic: "ustar  \0" });
    expect((await list(archive)).map(({ path }) => path)).toEqual(["a/b", "b"]);
  });

  test("an extended header applies to the next entry only", async () => {
    const pax = { type: "x", content: paxRecords({ path: "long/name", mtime: "1.5", "SCHILY.xattr.user.a": "b" }) };
    expect((await list(forgeTar(pax, { path: "short" }, { path: "next" }))).map(({ path }) => path)).toEqual([
      "long/name",
      "next",
    ]);
  });

  test("a size beyond octal digits is read", async () => {
    const bytes = Buffer.alloc(12);
    bytes[0] = 0x80;
    bytes.writeUInt32BE(5, 8);
    const archive = forgeTar({ path: "a", content: "12345", overwrite: { offset: 124, bytes } });
    expect(await list(archive)).toEqual([{ kind: "file", path: "a", text: "12345" }]);
  });

  test("devices and FIFOs are recognized", async () => {
    const archive = forgeTar({ path: "c", type: "3" }, { path: "b", type: "4" }, { path: "p", type: "6" });
    expect((await list(archive)).map(({ kind }) => kind)).toEqual(["device", "device", "fifo"]);
  });

  test("the source is closed when the reader leaves", async () => {
    let isClosed = false;
    async function* source(): AsyncGenerator<Buffer> {
      try {
        yield forgeTar({ path: "a" }, { path: "b" });
      } finally {
        isClosed = true;
      }
    }
    for await (const _ of readTar(source())) break;
    expect(isClosed).toBe(true);
  });
});

describe("what is refused", () => {
  const pax = (records: Record<string, string>): Buffer => forgeEntry({ type: "x", content: paxRecords(records) });
  const negative = Buffer.alloc(12, 0xff);

  test.for([
    { what: "nothing at all", archive: Buffer.alloc(0) },
    { what: "something else", archive: Buffer.from("PK\u0003\u0004".padEnd(2048, "x")) },
    { what: "a wrong checksum", archive: forgeTar({ checksum: 1 }) },
    { what: "an archive without its end", archive: forgeEntry({ path: "a" }) },
    { what: "one that ends within a header", archive: forgeTar({ path: "a" }).subarray(0, 300) },
    {
      what: "one that ends within a file",
      archive: forgeEntry({ path: "a", content: "x".repeat(2000) }).subarray(0, 1500),
    },
    { what: "one that ends within the padding", archive: forgeEntry({ path: "a", content: "x" }).subarray(0, 600) },
    { what: "a file that claims more than there is", archive: forgeTar({ path: "a", size: 10_000_000_000 }) },
    { what: "a negative size", archive: forgeTar({ path: "a", overwrite: { offset: 124, bytes: negative } }) },
    {
      what: "a number with letters",
      archive: forgeTar({ path: "a", overwrite: { offset: 100, bytes: Buffer.from("0x1f") } }),
    },
    { what: "an unknown type", archive: forgeTar({ path: "a", type: "Z" }) },
    { what: "a multi-volume part", archive: forgeTar({ path: "a", type: "M" }) },
    { what: "a link with content", archive: forgeTar({ path: "a", type: "2", linkPath: "b", content: "x" }) },
    { what: "a directory with content", archive: forgeTar({ path: "a/", type: "5", content: "x" }) },
    {
      what: "a name that is not UTF-8",
      archive: forgeTar({ overwrite: { offset: 0, bytes: Buffer.from([0x66, 0xff, 0xfe]) } }),
    },
    { what: "an endless extended header", archive: forgeTar({ type: "x", size: 2 ** 30 }) },
    { what: "an extended header of nonsense", archive: forgeTar({ type: "x", content: "not a record" }) },
    { what: "a record longer than its header", archive: forgeTar({ type: "x", content: "99 path=a\n" }) },
    { what: "a record of no length", archive: forgeTar({ type: "x", content: "0 path=a\n" }) },
    { what: "a record without a value", archive: forgeTar({ type: "x", content: "9 patha\n\n" }) },
    { what: "a size that is no number", archive: Buffer.concat([pax({ size: "-1" }), forgeTar({})]) },
    { what: "a sparse file in pax", archive: Buffer.concat([pax({ "GNU.sparse.major": "1" }), forgeTar({})]) },
    { what: "a sparse file of GNU", archive: forgeTar({ path: "a", type: "S" }) },
  ])("$what", async ({ archive }) => {
    await expect(list(archive)).rejects.toBeInstanceOf(MalformedArchive);
  });
});
