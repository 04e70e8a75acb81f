import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import {
  frameMagic,
  frameTrailer,
  headerBytes,
  protocolConstants,
  spawnFlags,
  toGuest,
  toHost,
  trailerBytes,
  typeOffset,
} from "../../src/guest/frames.ts";

/** The page, the guest's header and the codec have the same numbers. The page is the authoritative one. */
const page = readText("docs/guest-protocol.md");
const header = readText("guest/src/protocol.h");
const defines = new Map(
  [...header.matchAll(/^#define ATOLL_(\w+) (\S+)$/gm)].map(([, name, value]) => [name, Number(value)]),
);

describe("constants", () => {
  const documented = numbersOf(rowsOf("constant"), { name: 0, value: 1 });

  test("the page has some", () => {
    expect(Object.keys(documented).length).toBeGreaterThan(5);
  });

  test("the codec has the page's", () => {
    expect(protocolConstants).toEqual(documented);
  });

  test.for(Object.entries(documented))("the header has the page's %s = %i", ([name, value]) => {
    expect(defines.get(name)).toBe(value);
  });
});

describe("flags of SPAWN", () => {
  const documented = numbersOf(rowsOf("flag"), { name: 0, value: 1 });

  test("the codec has the page's", () => {
    expect(spawnFlags).toEqual(documented);
  });

  test("the header has the page's, and no other", () => {
    expect(definedWith("SPAWN_", "SPAWN_")).toEqual(documented);
  });
});

describe("frames", () => {
  const hostToGuest = numbersOf(rowsOf("type", "Host → guest"), { name: 1, value: 0 });
  const guestToHost = numbersOf(rowsOf("type", "Guest → host"), { name: 1, value: 0 });

  test("the codec has the page's host → guest", () => {
    expect(toGuest).toEqual(hostToGuest);
  });

  test("the codec has the page's guest → host", () => {
    expect(toHost).toEqual(guestToHost);
  });

  test("the header has the page's, and no other", () => {
    expect(definedWith("FRAME_", "")).toEqual({ ...hostToGuest, ...guestToHost });
  });

  test("no number is used twice, and the highest bit is the direction", () => {
    const numbers = [...Object.values(hostToGuest), ...Object.values(guestToHost)];
    expect(new Set(numbers).size).toBe(numbers.length);
    expect(Object.values(hostToGuest).filter((number) => number >= 0x80)).toEqual([]);
    expect(Object.values(guestToHost).filter((number) => number < 0x80)).toEqual([]);
  });
});

describe("the form of a frame", () => {
  const fields = new Map(rowsOf("offset").map(([offset, size, field, meaning]) => [field, { offset, size, meaning }]));

  test("the magic number is the same in all three", () => {
    const documented = Number(fields.get("magic")?.meaning?.split(" ")[0]);
    expect(frameMagic).toBe(documented);
    expect(defines.get("MAGIC")).toBe(documented);
    expect(Buffer.from("ATOL").readUInt32LE()).toBe(documented);
  });

  test("header and trailer have the same size in all three", () => {
    const header = Number(fields.get("payload")?.offset);
    const trailer = Number(fields.get("trailer")?.size);
    expect([headerBytes, trailerBytes]).toEqual([header, trailer]);
    expect([defines.get("HEADER_SIZE"), defines.get("TRAILER_SIZE")]).toEqual([header, trailer]);
    expect(typeOffset).toBe(Number(fields.get("type")?.offset));
  });

  test("the trailer is what the page says", () => {
    expect(fields.get("trailer")?.meaning).toBe("~(length ^ id ^ type)");
    expect(frameTrailer(0x92, 0x8000_0001, 0x10)).toBe((~(0x10 ^ 0x8000_0001 ^ 0x92) & 0xffff_ffff) >>> 0);
  });

  test("what the page says of sizes holds in the header", () => {
    const text = page.replaceAll(/\s+/g, " ");
    const [, exitSize] = /the (\d+) payload bytes of `EXIT`/.exec(text) ?? [];
    const [, entrySize] = /: (\d+) bytes together/.exec(text) ?? [];
    const [, pingSize] = /`PING` \| request \| up to (\d+) bytes/.exec(text) ?? [];
    expect([exitSize, entrySize, pingSize].map(Number)).toEqual([
      defines.get("EXIT_SIZE"),
      defines.get("WELCOME_ENTRY_SIZE"),
      defines.get("MAX_PING"),
    ]);
  });

  test("the longest output fits the longest frame to the host", () => {
    const outputHead = 17;
    expect(protocolConstants.MAX_DATA + outputHead).toBeLessThanOrEqual(protocolConstants.MAX_TO_HOST);
    const welcomeHead = 24;
    const entry = 84;
    expect(protocolConstants.MAX_STREAMS * entry + welcomeHead).toBeLessThanOrEqual(protocolConstants.MAX_TO_HOST);
  });
});

function readText(path: string): string {
  return readFileSync(fileURLToPath(new URL(`../../../../${path}`, import.meta.url)), "utf8");
}

/** Returns the rows of the table whose first column has this head, after the heading if one is given. */
function rowsOf(head: string, heading?: string): string[][] {
  const from = heading === undefined ? 0 : page.indexOf(`## ${heading}\n`);
  const rest = from === -1 ? "" : page.slice(from);
  const start = rest.search(new RegExp(`\\n\\| ${head} +\\|`));
  if (start === -1) throw new Error(`The page has no table of ${head}`);
  const lines = rest.slice(start + 1).split("\n");
  const length = lines.findIndex((line) => !line.startsWith("|"));
  return lines.slice(2, length).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim().replaceAll("`", "")),
  );
}

function numbersOf(rows: string[][], column: { name: number; value: number }): Record<string, number> {
  return Object.fromEntries(rows.map((cells) => [cells[column.name], Number(cells[column.value])]));
}

function definedWith(prefix: string, kept: string): Record<string, number> {
  const found = [...defines].filter(([name]) => name?.startsWith(prefix));
  return Object.fromEntries(found.map(([name = "", value]) => [kept + name.slice(prefix.length), value]));
}
