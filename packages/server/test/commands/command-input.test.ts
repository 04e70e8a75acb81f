import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { CommandInput } from "../../src/commands/command-input.ts";
import { InputWriters } from "../../src/commands/input-writers.ts";

let dir: string;
let file: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-input-"));
  file = join(dir, "input");
});

afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** A process that accepts all input; `text` is what it has received. */
class Reader {
  text = "";
  isClosed = false;
  flush: () => Promise<void> = async () => undefined;

  get stdinBytes(): number {
    return this.text.length;
  }

  async writeStdin(data: Uint8Array | string): Promise<void> {
    this.text += Buffer.from(data).toString();
  }

  flushStdin(): Promise<void> {
    return this.flush();
  }

  async closeStdin(): Promise<void> {
    this.isClosed = true;
  }
}

const bytes = (text: string): Buffer => Buffer.from(text);

describe("the input of a command", () => {
  test("without writers is one stream: known bytes are skipped, and a gap is refused", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    expect(await input.write(bytes("hello"), { offset: 0 })).toBe(5);
    expect(await input.write(bytes("hello world"), { offset: 0 })).toBe(11);
    await expect(input.write(bytes("!"), { offset: 12 })).rejects.toMatchObject({
      code: "invalid_argument",
      details: { stdinBytes: 11 },
    });
    expect(reader.text).toBe("hello world");
  });

  test("of two writers at the same offset has both, and repeated bytes of either are skipped", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    await Promise.all([
      input.write(bytes("aaa"), { writer: "a", offset: 0 }),
      input.write(bytes("bb"), { writer: "b", offset: 0 }),
      input.write(bytes("aaaAA"), { writer: "a", offset: 0 }),
      input.write(bytes("bb"), { writer: "b", offset: 0 }),
    ]);
    expect(reader.text).toBe("aaabbAA");
    expect([input.nextOffset("a"), input.nextOffset("b"), input.nextOffset(undefined)]).toEqual([5, 2, 7]);
  });

  test("is closed by a writer only when all bytes of that writer are there", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    await input.write(bytes("bbbbbbbb"), { writer: "b", offset: 0 });
    await expect(input.close({ writer: "a", offset: 3 })).rejects.toMatchObject({ details: { writerBytes: 0 } });
    expect(reader.isClosed).toBe(false);
    await input.write(bytes("aaa"), { writer: "a", offset: 0 });
    expect(await input.close({ writer: "a", offset: 3 })).toBe(3);
    expect(reader.isClosed).toBe(true);
  });

  test("causes no unhandled rejection after its writer has left", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    reader.flush = () => Promise.reject(new SandboxError("invalid_state", "Cannot flush: the process has ended"));
    const gone = AbortSignal.abort(new Error("The client went away"));
    await expect(input.close({ signal: gone })).rejects.toThrow("went away");
    // This waits until an unhandled rejection would be reported, which fails the run.
    await new Promise((resolve) => setImmediate(resolve));
  });
});

describe("the bytes of each writer", () => {
  test("are known after a restart, from what the process has received", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    await input.write(bytes("aaaa"), { writer: "a", offset: 0 });
    await input.write(bytes("bb"), { writer: "b", offset: 0 });
    await input.write(bytes("---"), {});
    await input.write(bytes("aaaaAAA"), { writer: "a", offset: 0 });
    const all = await InputWriters.open(file, 12);
    expect([all.acceptedFrom("a"), all.acceptedFrom("b"), all.acceptedFrom("c")]).toEqual([7, 2, 0]);
    // The server crashed before the last piece reached the process.
    const fewer = await InputWriters.open(file, 10);
    expect([fewer.acceptedFrom("a"), fewer.acceptedFrom("b")]).toEqual([5, 2]);
  });

  test("are counted on by every later server, however often servers crash", async () => {
    const reader = new Reader();
    for (const [index, writer] of ["a", "b", "a", "a", "b"].entries()) {
      const input = new CommandInput(reader, await InputWriters.open(file, reader.stdinBytes));
      const offset = input.nextOffset(writer);
      await input.write(bytes(String(index)), { writer, offset });
    }
    const last = await InputWriters.open(file, reader.stdinBytes);
    expect(reader.text).toBe("01234");
    expect([last.acceptedFrom("a"), last.acceptedFrom("b")]).toEqual([3, 2]);
  });

  test("take little space on disk, however often writers alternate", async () => {
    const writers = new InputWriters(file);
    for (let turn = 0; turn < 2_201; turn += 1) {
      const writer = turn % 2 === 0 ? "a" : "b";
      await writers.begin(writer, turn);
      writers.accept(writer, 1);
    }
    expect((await readFile(file)).byteLength).toBeLessThan(60_000);
    const restored = await InputWriters.open(file, 2_201);
    expect([restored.acceptedFrom("a"), restored.acceptedFrom("b")]).toEqual([1_101, 1_100]);
  });

  test("are forgotten when there are too many writers, the quietest first, and a gap is refused then", async () => {
    const reader = new Reader();
    const input = new CommandInput(reader, new InputWriters(file));
    await input.write(bytes("first"), { writer: "first", offset: 0 });
    for (let index = 0; index < 1_000; index += 1) await input.write(bytes("x"), { writer: `w${index}`, offset: 0 });
    await expect(input.write(bytes("more"), { writer: "first", offset: 5 })).rejects.toMatchObject({
      code: "invalid_argument",
    });
  });
});
