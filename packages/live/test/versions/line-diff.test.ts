import { expect, test } from "vitest";
import { lineDiff } from "../../src/versions/line-diff.ts";

test("a diff has the changed lines with three around them", () => {
  const before = Array.from({ length: 20 }, (_, at) => `line ${at + 1}`);
  const after = before.with(9, "new 10").toSpliced(15, 1);
  expect(lineDiff(`${before.join("\n")}\n`, `${after.join("\n")}\n`)).toBe(`@@ -7,13 +7,12 @@
 line 7
 line 8
 line 9
-line 10
+new 10
 line 11
 line 12
 line 13
 line 14
 line 15
-line 16
 line 17
 line 18
 line 19`);
});

test("a text that begins or ends to exist is one hunk", () => {
  expect(lineDiff("", "a\nb\n")).toBe("@@ -0,0 +1,2 @@\n+a\n+b");
  expect(lineDiff("a\n", "")).toBe("@@ -1,1 +0,0 @@\n-a");
  expect(lineDiff("a\n", "a\n")).toBe("");
});

test("a diff always turns the one text into the other", () => {
  let seed = 7;
  const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
  for (let round = 0; round < 300; round += 1) {
    const before = Array.from({ length: random(12) }, () => `${random(4)}`);
    const after = Array.from({ length: random(12) }, () => `${random(4)}`);
    const lines = lineDiff(before.join("\n"), after.join("\n")).split("\n");
    const side = (mark: string): string[] =>
      lines.filter((line) => line.startsWith(mark) || line.startsWith(" ")).map((line) => line.slice(1));
    // Short texts are shown whole as soon as something differs.
    const isSame = before.join("\n") === after.join("\n");
    expect(side("-")).toEqual(isSame ? [] : trimmed(before, after));
    expect(side("+")).toEqual(isSame ? [] : trimmed(after, before));
  }
});

/** The lines that hunks show: those at most three away from a difference. Longer common ends are left out. */
function trimmed(lines: readonly string[], other: readonly string[]): string[] {
  let start = 0;
  while (start < lines.length && start < other.length && lines[start] === other[start]) start += 1;
  return lines.slice(Math.max(0, start - 3));
}
