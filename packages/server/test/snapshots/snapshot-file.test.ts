import { createHash } from "node:crypto";
import { SandboxId, SnapshotName, TemplateName } from "@atoll/protocol";
import { expect, test } from "vitest";
import { readHeader, writeHeader } from "../../src/snapshots/snapshot-file.ts";
import type { SnapshotHeader } from "../../src/snapshots/snapshot-manifest.ts";

const seal = { sizeBytes: 5, sha256: "a".repeat(64) };
const header: SnapshotHeader = {
  version: 1,
  name: SnapshotName.parse("tools"),
  template: TemplateName.parse("host"),
  base: TemplateName.parse("host-0123456789abcdef"),
  sandboxId: SandboxId.parse("a".repeat(20)),
  createdAtMs: 17,
  files: { ...seal, trees: 2 },
  stored: { ...seal, encoding: "br" },
};

async function* inPieces(file: Buffer, length: number): AsyncGenerator<Buffer, void, void> {
  for (let at = 0; at < file.byteLength; at += length) yield file.subarray(at, at + length);
}

async function collect(pieces: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece.toString();
  return text;
}

const file = Buffer.concat([writeHeader(header), Buffer.from("bytes")]);

test.for([1, 7, 100, 10_000])("a file that comes in pieces of %d bytes is read as it was written", async (length) => {
  const read = await readHeader(inPieces(file, length));
  expect(read.header).toEqual(header);
  expect(await collect(read.rest)).toBe("bytes");
});

/** Returns a header that matches its first line, whatever it contains. */
function sealed(json: string, length = Buffer.byteLength(json)): Buffer {
  return Buffer.from(`atoll-snapshot 1 ${length} ${createHash("sha256").update(json).digest("hex")}\n${json}`);
}

test.for<[what: string, file: Buffer]>([
  ["nothing", Buffer.alloc(0)],
  ["a first line without an end", Buffer.alloc(1 << 20, "a")],
  ["another kind of file", Buffer.from("ustar\n")],
  ["a version to come", Buffer.from(file.toString("latin1").replace("snapshot 1", "snapshot 2"), "latin1")],
  ["a header that never ends", sealed("{}", 99_999)],
  ["a header that is cut off", file.subarray(0, 200)],
  ["a header that was changed", Buffer.from(file.toString("latin1").replace("tools", "toolz"), "latin1")],
  ["a header that is not JSON", sealed("{")],
  ["a name that leads elsewhere", sealed(JSON.stringify({ ...header, name: "../../etc" }))],
  ["a field too many", sealed(JSON.stringify({ ...header, owner: "me" }))],
  ["a negative size", sealed(JSON.stringify({ ...header, stored: { ...header.stored, sizeBytes: -1 } }))],
])("%s is refused", async ([, hostile]) => {
  await expect(readHeader(inPieces(hostile, 64))).rejects.toMatchObject({ code: "invalid_argument" });
});
