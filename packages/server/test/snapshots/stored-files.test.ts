import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import type { Checksum } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { restoreFiles, shrinkFiles } from "../../src/snapshots/stored-files.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-stored-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const { signal } = new AbortController();
const checksumOf = (data: Buffer): Checksum => ({
  sizeBytes: data.byteLength,
  sha256: createHash("sha256").update(data).digest("hex"),
});

test.for<[what: string, data: Buffer, encoding: string]>([
  ["text", Buffer.from("the same again and again\n".repeat(200_000)), "br"],
  ["noise", randomBytes(3_000_000), "plain"],
  ["nothing", Buffer.alloc(0), "plain"],
])("%s is restored unchanged, and compressed where that pays", async ([, data, encoding]) => {
  const path = join(dir, "plain");
  await writeFile(path, data);
  const stored = await shrinkFiles({ path, ...checksumOf(data) }, join(dir, "stored"), signal);
  expect(stored).toEqual({ path: stored.path, encoding, ...checksumOf(await readFile(stored.path)) });
  const back = await restoreFiles(stored, join(dir, "back"), { expected: checksumOf(data), signal });
  expect(data.equals(await readFile(back))).toBe(true);
});

test.for<[what: string, stored: Buffer, encoding: "plain" | "br"]>([
  ["other bytes", brotliCompressSync("other"), "br"],
  ["fewer bytes", brotliCompressSync("sam"), "br"],
  ["far more bytes than expected", brotliCompressSync(Buffer.alloc(50_000_000)), "br"],
  ["data that is not compressed", Buffer.from("same"), "br"],
  ["what is cut off", brotliCompressSync(randomBytes(1000)).subarray(0, 500), "br"],
  ["other bytes that are not compressed", Buffer.from("lame"), "plain"],
])("%s are refused, and no more than expected is written", async ([, data, encoding]) => {
  const path = join(dir, "stored");
  const target = join(dir, "back");
  await writeFile(path, data);
  const expected = checksumOf(Buffer.from("same"));
  const restoring = restoreFiles({ path, encoding, ...checksumOf(data) }, target, { expected, signal });
  await expect(restoring).rejects.toMatchObject({ code: "unrestorable" });
  const written = await stat(target).catch(() => undefined);
  expect(written?.size ?? 0).toBeLessThanOrEqual(4);
});
