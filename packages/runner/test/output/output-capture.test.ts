import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { OutputCapture, type OutputCaptureOptions } from "../../src/output/output-capture.ts";
import { readTail } from "../../src/output/read-text.ts";

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-output-"));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
});

const open = (options: Partial<OutputCaptureOptions> = {}) =>
  OutputCapture.open({ directory, path: "logs/one", ...options });

const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

describe("output of a command", () => {
  test("is in the files byte for byte, each stream and both in their order", async () => {
    const capture = await open();
    await capture.write("stdout", Buffer.from("one\n"));
    await capture.write("stderr", Buffer.from([0xff, 0x00, 0x0a]));
    await capture.write("stdout", Buffer.from("two\n"));
    const { stdout, stderr, combined } = await capture.finish();
    expect(stdout).toEqual({
      path: "logs/one.stdout",
      bytes: 8,
      dropped: 0,
      sha256: sha256(Buffer.from("one\ntwo\n")),
      head: "one\ntwo\n",
      tail: "",
    });
    expect(stderr).toMatchObject({ bytes: 3, head: "\ufffd\0\n" });
    expect(await readFile(join(directory, combined.path))).toEqual(
      Buffer.concat([Buffer.from("one\n"), Buffer.from([0xff, 0x00, 0x0a]), Buffer.from("two\n")]),
    );
  });

  test("of one stream only is stored once", async () => {
    const capture = await open();
    await capture.write("stderr", Buffer.from("said"));
    const { stderr, combined } = await capture.finish();
    expect(combined).toEqual(stderr);
    expect((await readdir(join(directory, "logs"))).toSorted()).toEqual(["one.stderr", "one.stdout"]);
  });

  test("that never came is two empty files", async () => {
    const { stdout, combined } = await (await open()).finish();
    expect(stdout).toMatchObject({ bytes: 0, dropped: 0, head: "", tail: "" });
    expect(combined.bytes).toBe(0);
  });

  test.for([
    { pieceBytes: 1, maxFileBytes: 64, totalBytes: 65 },
    { pieceBytes: 7, maxFileBytes: 64, totalBytes: 64 },
    { pieceBytes: 7, maxFileBytes: 64, totalBytes: 1_000 },
    { pieceBytes: 100, maxFileBytes: 64, totalBytes: 1_000 },
    { pieceBytes: 5_000, maxFileBytes: 1_001, totalBytes: 20_000 },
    { pieceBytes: 33, maxFileBytes: 3, totalBytes: 99 },
  ])("beyond the limit is its beginning, a line and its end: %j", async ({ pieceBytes, maxFileBytes, totalBytes }) => {
    const data = randomBytes(totalBytes);
    const capture = await open({ maxFileBytes });
    for (let at = 0; at < data.length; at += pieceBytes) {
      await capture.write("stdout", data.subarray(at, at + pieceBytes));
    }
    const { stdout } = await capture.finish();
    const head = Math.floor(maxFileBytes / 2);
    const dropped = Math.max(0, totalBytes - maxFileBytes);
    const line = dropped === 0 ? "" : `\n[${dropped} bytes dropped]\n`;
    const rest = dropped === 0 ? data.subarray(head) : data.subarray(totalBytes - (maxFileBytes - head));
    const stored = await readFile(join(directory, stdout.path));
    expect(stored.equals(Buffer.concat([data.subarray(0, head), Buffer.from(line), rest]))).toBe(true);
    expect(stdout).toMatchObject({ bytes: totalBytes, dropped, sha256: sha256(data) });
    expect(await readdir(join(directory, "logs"))).not.toContain("one.stdout.end");
  });

  test("that floods does not fill memory", async () => {
    const piece = randomBytes(1024 * 1024);
    const capture = await open({ maxFileBytes: 4 * 1024 * 1024 });
    const before = process.memoryUsage().arrayBuffers;
    let most = 0;
    for (let count = 0; count < 256; count += 1) {
      await capture.write(count % 2 === 0 ? "stdout" : "stderr", Buffer.from(piece));
      most = Math.max(most, process.memoryUsage().arrayBuffers - before);
    }
    const { stdout } = await capture.finish();
    expect(stdout.bytes).toBe(128 * 1024 * 1024);
    expect(most).toBeLessThan(128 * 1024 * 1024);
  });

  test("that is written without waiting is whole all the same", async () => {
    const capture = await open();
    const pieces = Array.from({ length: 5_000 }, (_, at) => Buffer.from(`line ${at}\n`));
    await Promise.all(pieces.map((piece) => capture.write("stdout", piece)));
    const { stdout } = await capture.finish();
    expect(stdout.sha256).toBe(sha256(Buffer.concat(pieces)));
    expect(await readFile(join(directory, stdout.path))).toEqual(Buffer.concat(pieces));
  });

  test("that the disk does not take is an error", async () => {
    await mkdir(join(directory, "logs"));
    await symlink("/dev/full", join(directory, "logs/one.stderr"));
    const capture = await open();
    await capture.write("stderr", Buffer.from("lost"));
    await expect(capture.finish()).rejects.toMatchObject({ code: "ENOSPC" });
  });
});

describe("the text for a report", () => {
  test("has both ends of a long output, and no character that is cut", async () => {
    const capture = await open({ headBytes: 10, tailBytes: 10 });
    await capture.write("stdout", Buffer.from("äöü€".repeat(100)));
    const { stdout } = await capture.finish();
    expect(stdout.head).toBe("äöü€");
    expect(stdout.tail).toBe("äöü€");
    expect(await readTail(join(directory, stdout.path), 6)).toBe("ü€");
  });

  test("of invalid bytes is text", async () => {
    const capture = await open({ headBytes: 4, tailBytes: 4 });
    await capture.write("stdout", Buffer.alloc(100, 0xff));
    const { stdout } = await capture.finish();
    expect(stdout.head).toMatch(/^\ufffd*$/);
    expect(stdout.tail).toMatch(/^\ufffd+$/);
  });
});

describe("the last line", () => {
  async function linesOf(...pieces: (string | Buffer)[]): Promise<string[]> {
    const lines: string[] = [];
    const capture = await open({ onLine: (line) => void lines.push(line) });
    for (const piece of pieces) await capture.write("stdout", Buffer.from(piece));
    await capture.finish();
    return lines;
  }

  test("is the last one that can be seen", async () => {
    expect(await linesOf("one\ntwo\n\n", "thr", "ee", "\n\n")).toEqual(["two", "thr", "three", "three"]);
  });

  test("cannot steer a terminal", async () => {
    expect(await linesOf("\u001b[31mred\u001b[0m \u001b]0;title\u0007\u0008x\u202e\n")).toEqual(["red x"]);
  });

  test("of a line without an end is short", async () => {
    const lines = await linesOf(Buffer.alloc(1024 * 1024, "x"), Buffer.alloc(1024 * 1024, "y"));
    expect(lines.every((line) => line.length <= 200)).toBe(true);
  });

  test("is what a progress bar shows now", async () => {
    expect(await linesOf("10 %\r50 %\r")).toEqual(["50 %"]);
  });
});
