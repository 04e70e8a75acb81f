import { describe, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import { parseEntry, parseEvent, readRecords, RecordCutOff } from "../../src/guest/tool-records.ts";
import { MalformedPayload } from "../../src/guest/wire.ts";
import { caught } from "../support/caught.ts";
import { SeededRandom } from "../support/seeded-random.ts";
import { entryRecord, eventRecord, framed } from "../support/tool-output.ts";

async function* chunksOf(...chunks: Buffer[]): AsyncGenerator<{ data: Buffer }, void, void> {
  for (const data of chunks) yield { data };
}

async function recordsOf(...chunks: Buffer[]): Promise<string[]> {
  const records: string[] = [];
  for await (const record of readRecords(chunksOf(...chunks))) records.push(record.toString());
  return records;
}

describe("records", () => {
  const words = ["", "one", "two and a half", "x"];
  const bytes = framed(...words.map((word) => Buffer.from(word)));

  test("they are the same wherever the output is cut", async () => {
    for (let cut = 0; cut <= bytes.byteLength; cut += 1) {
      expect(await recordsOf(bytes.subarray(0, cut), bytes.subarray(cut))).toEqual(words);
    }
  });

  test("they are the same when every byte comes alone", async () => {
    expect(await recordsOf(...Array.from(bytes, (byte) => Buffer.from([byte])))).toEqual(words);
  });

  test("output that ends within one is cut off, wherever", async () => {
    const one = framed(Buffer.from("abc"));
    for (let length = 1; length < one.byteLength; length += 1) {
      expect(await caught(recordsOf(one.subarray(0, length)))).toBeInstanceOf(RecordCutOff);
    }
  });

  test("a length that no record has is refused before anything is buffered", async () => {
    for (const length of [3 * 8192 + 1, 0x7fff_ffff, 0xffff_ffff]) {
      const head = Buffer.alloc(4);
      head.writeUInt32LE(length);
      const error = await caught(recordsOf(head));
      expect(error).toBeInstanceOf(MalformedPayload);
      expect(error).not.toBeInstanceOf(RecordCutOff);
    }
  });

  test("the longest is taken", async () => {
    expect((await recordsOf(framed(Buffer.alloc(3 * 8192, "x"))))[0]).toHaveLength(3 * 8192);
  });
});

describe("entries", () => {
  test("every field is parsed", () => {
    const record = entryRecord({
      name: "ä b",
      mode: 0o104_755,
      size: 5_000_000_000,
      modifiedNs: 1_700_000_000_123_456_789n,
    });
    expect(parseEntry(record)).toEqual({
      name: "ä b",
      type: "file",
      mode: 0o4755,
      uid: 1000,
      gid: 1001,
      links: 1,
      sizeBytes: 5_000_000_000,
      inode: 0xffff_ffff_ffff_fff0n,
      modifiedAtMs: 1_700_000_000_123,
    });
  });

  test.for([
    ["f", "file"],
    ["d", "directory"],
    ["l", "link"],
    ["p", "fifo"],
    ["s", "socket"],
    ["c", "character device"],
    ["b", "block device"],
  ] as const)("%s is a %s", ([letter, type]) => {
    expect(parseEntry(entryRecord({ name: "x", type: letter })).type).toBe(type);
  });

  test("a link says where it points, and nothing else does", () => {
    expect(parseEntry(entryRecord({ name: "x", type: "l", target: "../y" })).target).toBe("../y");
    expect(parseEntry(entryRecord({ name: "x", type: "f", target: "../y" }))).not.toHaveProperty("target");
  });

  test("a time before 1970 is one", () => {
    expect(parseEntry(entryRecord({ name: "x", modifiedNs: -1_000_000_000n })).modifiedAtMs).toBe(-1000);
  });

  test.for<[string, Buffer]>([
    ["of an unknown type", entryRecord({ name: "x", type: "z" })],
    ["with a size that no file has", entryRecord({ name: "x", size: 2n ** 63n })],
    ["with a NUL in its name", entryRecord({ name: "a\0b" })],
    ["with too long a name", entryRecord({ name: "x".repeat(8193) })],
    ["with bytes left over", Buffer.concat([entryRecord({ name: "x" }), Buffer.alloc(1)])],
    ["that is empty", Buffer.alloc(0)],
  ])("one %s is refused", ([, record]) => {
    expect(() => parseEntry(record)).toThrow(MalformedPayload);
  });
});

describe("events", () => {
  test.for([
    [1, "created"],
    [2, "written"],
    [3, "attributes"],
    [4, "removed"],
    [5, "moved_away"],
    [6, "moved_here"],
    [7, "lost"],
    [8, "watching"],
    [9, "gone"],
  ] as const)("%i is %s", ([number, kind]) => {
    const record = eventRecord({ cursor: 3, kind: number, isDirectory: 1, cookie: 9, path: "a/b" });
    expect(parseEvent(record)).toEqual({ cursor: 3, kind, isDirectory: true, cookie: 9, path: "a/b" });
  });

  test.for<[string, Buffer]>([
    ["of an unknown kind", eventRecord({ kind: 10 })],
    ["of kind 0", eventRecord({ kind: 0 })],
    ["that is cut short", eventRecord().subarray(1)],
    ["with bytes left over", Buffer.concat([eventRecord(), Buffer.alloc(1)])],
  ])("one %s is refused", ([, record]) => {
    expect(() => parseEvent(record)).toThrow(MalformedPayload);
  });
});

test("bytes of any kind are records or malformed, nothing else", async () => {
  const random = SeededRandom.forFuzz("records");
  for (const endMs = performance.now() + thorough(100, 10_000); performance.now() < endMs;) {
    const honest = framed(entryRecord({ name: "some name" }), eventRecord());
    honest.writeUInt8(random.below(256), random.below(honest.byteLength));
    const bytes = random.below(2) === 0 ? honest : random.bytes(random.below(300));
    try {
      for await (const record of readRecords(chunksOf(...random.pieces(bytes, 50)))) {
        random.oneOf([parseEntry, parseEvent])(record);
      }
    } catch (error) {
      expect(error).toBeInstanceOf(MalformedPayload);
    }
  }
});
