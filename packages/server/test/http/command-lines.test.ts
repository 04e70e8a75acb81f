import { expect, test } from "vitest";
import { textParts } from "../../src/http/command-lines.ts";

const euro = Buffer.from("€");

function shown(data: Buffer): string[] {
  return textParts(data).map(({ start, end, isText }) =>
    isText ? data.subarray(start, end).toString() : data.subarray(start, end).toString("hex"),
  );
}

test.for<[string, Buffer, string[]]>([
  ["plain text is text", Buffer.from("a€b"), ["a€b"]],
  [
    "a character that is cut at the end is sent as bytes",
    Buffer.concat([Buffer.from("a"), euro.subarray(0, 2)]),
    ["a", "e282"],
  ],
  ["the rest of a character is sent as bytes, too", Buffer.concat([euro.subarray(2), Buffer.from("b")]), ["ac", "b"]],
  ["bytes that are not text are sent as bytes", Buffer.from([0xff, 0x41, 0xfe]), ["ff41fe"]],
  ["only a part of a character", euro.subarray(1, 2), ["82"]],
  ["an empty output has no parts", Buffer.alloc(0), []],
])("%s", ([, data, parts]) => {
  expect(shown(data)).toEqual(parts);
});

test("wherever a text is cut, no byte is lost", () => {
  const text = Buffer.from("aé€😀z");
  for (let cut = 0; cut <= text.byteLength; cut += 1) {
    for (const half of [text.subarray(0, cut), text.subarray(cut)]) {
      const parts = textParts(half);
      expect(Buffer.concat(parts.map(({ start, end }) => half.subarray(start, end)))).toEqual(half);
      expect(parts.every(({ start, end, isText }) => isText || end - start <= 3)).toBe(true);
    }
  }
});
