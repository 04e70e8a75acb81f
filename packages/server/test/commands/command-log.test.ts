import { mkdtemp, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CommandLog } from "../../src/commands/command-log.ts";
import { followLog } from "../../src/commands/follow-log.ts";

const logBytes = 4096;
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-log-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Writes pieces as a process would: stdout and stderr alternate, and every byte differs from its neighbours. */
class Writer {
  readonly log: CommandLog;
  all = Buffer.alloc(0);
  #offsets = { stdout: 0, stderr: 0 };

  constructor(log: CommandLog) {
    this.log = log;
  }

  async write(stream: "stdout" | "stderr", bytes: number): Promise<void> {
    const at = this.all.byteLength;
    const data = Buffer.from(Array.from({ length: bytes }, (_, index) => (at + index) % 251));
    await this.log.append({ stream, at, offset: this.#offsets[stream], data });
    this.#offsets[stream] += bytes;
    this.all = Buffer.concat([this.all, data]);
  }
}

async function replay(log: CommandLog, from = 0): Promise<{ bytes: Buffer; dropped: number; places: number[] }> {
  const chunks: Buffer[] = [];
  const places: number[] = [];
  let dropped = 0;
  let at = from;
  for await (const piece of followLog(log, { from, follow: false })) {
    expect(piece.at).toBe(at);
    places.push(at);
    at += piece.type === "dropped" ? piece.bytes : piece.data.byteLength;
    if (piece.type === "dropped") dropped += piece.bytes;
    else chunks.push(piece.data);
  }
  return { bytes: Buffer.concat(chunks), dropped, places };
}

async function nextData(pieces: ReturnType<typeof followLog>): Promise<Buffer> {
  const { value } = await pieces.next();
  if (value?.type !== "output") throw new Error("no output");
  return value.data;
}

describe("a follower that keeps up", () => {
  test("gets the newest piece without the disk, from any byte of it", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    await writer.write("stdout", 10);
    await writer.write("stderr", 20);
    await rm(dir, { recursive: true });
    expect((await replay(writer.log, 10)).bytes).toEqual(writer.all.subarray(10));
    expect((await replay(writer.log, 25)).bytes).toEqual(writer.all.subarray(25));
    await expect(replay(writer.log, 9)).rejects.toMatchObject({ code: "sandbox_ended" });
  });

  test("gets bytes that later changes of the writer's buffer do not reach", async () => {
    const log = CommandLog.create(dir, logBytes);
    const data = Buffer.from("before");
    await log.append({ stream: "stdout", at: 0, offset: 0, data });
    data.write("after!");
    expect((await replay(log)).bytes.toString()).toBe("before");
  });

  test("continues with the disk where it has fallen behind", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    await writer.write("stdout", 100);
    const pieces = followLog(writer.log, {});
    const chunks = [await nextData(pieces)];
    for (let count = 0; count < 5; count += 1) await writer.write("stderr", 30);
    await writer.log.complete();
    for (let count = 0; count < 5; count += 1) chunks.push(await nextData(pieces));
    expect(Buffer.concat(chunks).equals(writer.all)).toBe(true);
    expect(await pieces.next()).toMatchObject({ done: true });
  });
});

describe("replay", () => {
  test("yields every byte once from every starting byte", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    for (const bytes of [1, 300, 7, 1, 900]) {
      await writer.write("stdout", bytes);
      await writer.write("stderr", bytes + 1);
    }
    for (let from = 0; from <= writer.all.byteLength; from += 1) {
      expect((await replay(writer.log, from)).bytes.equals(writer.all.subarray(from))).toBe(true);
    }
    await writer.log.release();
  });

  test("reports the offset within the stream also in the middle of a piece", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    await writer.write("stdout", 10);
    await writer.write("stderr", 10);
    const reader = followLog(writer.log, { from: 15, follow: false });
    expect((await reader.next()).value).toMatchObject({ stream: "stderr", at: 15, offset: 5 });
    expect((await reader.next()).done).toBe(true);
    await writer.log.release();
  });

  test("of a long output keeps a quarter from the beginning and the rest from the end", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    for (let round = 0; round < 100; round += 1) await writer.write("stdout", 333);
    const { bytes, dropped } = await replay(writer.log);
    expect(dropped).toBe(writer.log.droppedBytes);
    expect(bytes.byteLength + dropped).toBe(33_300);
    expect(bytes.byteLength).toBeLessThanOrEqual(logBytes);
    expect(bytes.byteLength).toBeGreaterThan(logBytes * 0.85);
    const head = logBytes / 4;
    expect(bytes.subarray(0, head).equals(writer.all.subarray(0, head))).toBe(true);
    expect(bytes.subarray(head).equals(writer.all.subarray(head + dropped))).toBe(true);
    await writer.log.release();
  });

  test("from within the dropped bytes reports only the rest of the gap", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    for (let round = 0; round < 100; round += 1) await writer.write("stdout", 333);
    const { dropped } = await replay(writer.log, 5_000);
    expect(dropped).toBe(writer.log.droppedBytes - (5_000 - logBytes / 4));
    await writer.log.release();
  });

  test("leaves a bounded amount on disk", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    for (let round = 0; round < 200; round += 1) await writer.write("stdout", 500);
    let total = 0;
    for (const name of await readdir(dir)) total += (await stat(join(dir, name))).size;
    expect(total).toBeLessThan(logBytes * 1.5);
    await writer.log.release();
  });
});

describe("following", () => {
  test("continues with new output, and ends with the log", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    const chunks: Buffer[] = [];
    const following = (async () => {
      for await (const piece of followLog(writer.log, {})) if (piece.type === "output") chunks.push(piece.data);
    })();
    for (let round = 0; round < 5; round += 1) await writer.write("stdout", 100);
    await writer.log.complete();
    await following;
    expect(Buffer.concat(chunks).equals(writer.all)).toBe(true);
  });

  test("reports to a slow reader what it missed, and delays no other", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    await writer.write("stdout", 100);
    const reader = followLog(writer.log, {});
    expect((await reader.next()).value).toMatchObject({ type: "output", at: 0 });
    for (let round = 0; round < 100; round += 1) await writer.write("stdout", 500);
    await writer.log.complete();
    let at = 100;
    let dropped = 0;
    for await (const piece of reader) {
      expect(piece.at).toBe(at);
      at += piece.type === "dropped" ? piece.bytes : piece.data.byteLength;
      dropped += piece.type === "dropped" ? piece.bytes : 0;
    }
    expect(at).toBe(writer.all.byteLength);
    expect(dropped).toBe(writer.log.droppedBytes);
  });

  test("stops when its reader leaves", async () => {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    const leave = new AbortController();
    const waiting = followLog(writer.log, { signal: leave.signal }).next();
    leave.abort(new Error("left"));
    await expect(waiting).rejects.toThrow("left");
  });

  test("cannot begin behind the end", async () => {
    const log = CommandLog.create(dir, logBytes);
    await expect(followLog(log, { from: 1 }).next()).rejects.toMatchObject({ code: "invalid_argument" });
  });
});

describe("after a crash", () => {
  async function written(rounds: number): Promise<Writer> {
    const writer = new Writer(CommandLog.create(dir, logBytes));
    for (let round = 0; round < rounds; round += 1) {
      await writer.write("stdout", 40);
      await writer.write("stderr", 60);
    }
    await writer.log.release();
    return writer;
  }

  test.for([4, 100])("%d rounds are restored with their offsets and the dropped bytes", async (rounds) => {
    const writer = await written(rounds);
    const log = await CommandLog.open(dir, logBytes);
    expect(log.position).toEqual({ stdoutBytes: rounds * 40, stderrBytes: rounds * 60 });
    expect(log.droppedBytes).toBe(writer.log.droppedBytes);
    expect(await replay(log)).toEqual(await replay(writer.log));
  });

  test("a file that ends anywhere in a record loses only that record", async () => {
    await written(3);
    const path = join(dir, "head");
    const whole = await readFile(path);
    for (let length = 0; length <= whole.byteLength; length += 1) {
      await writeFile(path, whole.subarray(0, length));
      const log = await CommandLog.open(dir, logBytes);
      const { bytes } = await replay(log);
      const records = [64, 84, 64, 84, 64, 84];
      let end = 0;
      let expected = 0;
      for (const [index, record] of records.entries()) {
        end += record;
        if (end <= length) expected += index % 2 === 0 ? 40 : 60;
      }
      expect(bytes.byteLength).toBe(expected);
      expect((await stat(path)).size).toBeLessThanOrEqual(length);
    }
  });

  test("a flipped bit ends the log before it", async () => {
    await written(3);
    const path = join(dir, "head");
    const whole = await readFile(path);
    whole[64 + 84 + 30] = (whole[64 + 84 + 30] ?? 0) ^ 1;
    await writeFile(path, whole);
    expect((await CommandLog.open(dir, logBytes)).endAt).toBe(100);
  });

  test("the log continues where it ended, in the head and in the tail", async () => {
    for (const rounds of [4, 100]) {
      await rm(dir, { recursive: true, force: true });
      const writer = await written(rounds);
      const log = await CommandLog.open(dir, logBytes);
      const data = Buffer.alloc(500, "n");
      await log.append({ stream: "stdout", at: rounds * 100, offset: rounds * 40, data });
      const { bytes, dropped } = await replay(log);
      expect(bytes.byteLength + dropped).toBe(writer.all.byteLength + 500);
      expect(bytes.subarray(-500).equals(data)).toBe(true);
      await log.release();
    }
  });

  test("an empty last segment counts as none", async () => {
    const writer = await written(100);
    await writeFile(join(dir, `tail-${String(writer.all.byteLength).padStart(16, "0")}`), "");
    const log = await CommandLog.open(dir, logBytes);
    expect(log.endAt).toBe(writer.all.byteLength);
    expect(await replay(log)).toEqual(await replay(writer.log));
  });

  test("missing output of an ended command is reported as dropped, from any starting byte", async () => {
    const writer = await written(100);
    const ended = writer.log.position;
    const names = (await readdir(dir)).toSorted();
    expect(names.length).toBeGreaterThan(3);
    // The cases are the last file, one in the middle, and the first.
    for (const damaged of [names.at(-1), names.at(-3), "head"]) {
      await truncate(join(dir, damaged ?? ""), 100);
      const log = await CommandLog.openEnded(dir, logBytes, ended);
      expect(log.position).toEqual(ended);
      for (let from = 0; from <= writer.all.byteLength; from += 97) {
        let at = from;
        for await (const piece of followLog(log, { from })) {
          expect(piece.at).toBe(at);
          at += piece.type === "dropped" ? piece.bytes : piece.data.byteLength;
          if (piece.type === "output") expect(piece.data.equals(writer.all.subarray(piece.at, at))).toBe(true);
        }
        expect(at).toBe(writer.all.byteLength);
      }
    }
    await rm(dir, { recursive: true, force: true });
    const gone = await CommandLog.openEnded(dir, logBytes, ended);
    expect(gone.droppedBytes).toBe(writer.all.byteLength);
    expect(await replay(gone)).toMatchObject({ dropped: writer.all.byteLength, places: [0] });
  });

  test("a piece that is sent again, because it was not acknowledged, is not doubled", async () => {
    const writer = await written(1);
    const log = await CommandLog.open(dir, logBytes);
    await log.append({ stream: "stderr", at: 40, offset: 0, data: writer.all.subarray(40) });
    expect(log.endAt).toBe(100);
    await log.release();
  });
});
