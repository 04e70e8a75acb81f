import type { CommandInfo } from "@atoll/protocol";
import { expect, test } from "vitest";
import { commandStarted } from "../../src/manager/journal-events.ts";

const started = (argv: string[]): { argv: string[]; isCut?: boolean } =>
  commandStarted({ argv } as CommandInfo) as unknown as { argv: string[]; isCut?: boolean };

test("an event has all arguments of a usual command", () => {
  const argv = ["sh", "-c", "echo hi", ""];
  expect(started(argv)).toMatchObject({ argv });
  expect(started(argv)).not.toHaveProperty("isCut");
});

test.for<[string, string[]]>([
  ["one that is long", ["sh", "x".repeat(200_000)]],
  ["many", Array.from({ length: 4_096 }, () => "word")],
  ["many empty ones", ["true", ...Array.from({ length: 10_000 }, () => "")]],
])("an event has the beginning of too many arguments, and is marked: %s", ([, argv]) => {
  const event = started(argv);
  expect(event.isCut).toBe(true);
  expect(JSON.stringify(event).length).toBeLessThan(20_000);
  expect(event.argv[0]).toBe(argv[0]);
});
