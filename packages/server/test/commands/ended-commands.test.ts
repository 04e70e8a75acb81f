import { beforeEach, expect, test } from "vitest";
import { EndedCommands } from "../../src/commands/ended-commands.ts";
import type { StoredCommand } from "../../src/commands/stored-command.ts";

interface TestCommand {
  name: string;
  stored: StoredCommand;
  isBeingRead: boolean;
  keptLogBytes: number;
}

function command(name: string, endedAtMs: number, keptLogBytes = 0): TestCommand {
  const stored = { state: "lost", endedAtMs } as StoredCommand;
  return { name, stored, isBeingRead: false, keptLogBytes };
}

const names = (commands: readonly TestCommand[]): string[] => commands.map(({ name }) => name);

let ended: EndedCommands<TestCommand>;
beforeEach(() => {
  ended = new EndedCommands();
});

test("commands that ended first are removed first, also after the clock was set back", () => {
  for (const [name, endedAtMs] of [
    ["first", 500],
    ["second", 100],
    ["third", 100],
  ] as const) {
    ended.add(command(name, endedAtMs));
  }
  expect(names(ended.takeSurplus(3))).toEqual([]);
  expect(names(ended.takeSurplus(1))).toEqual(["first", "second"]);
  expect(names(ended.takeSurplus(0))).toEqual(["third"]);
});

test("commands of earlier servers are in the order of their ends, before those that end now", () => {
  ended.restore(command("long", 300));
  ended.add(command("now", 400));
  ended.restore(command("short", 200));
  ended.restore(command("shorter", 100));
  expect(names(ended.takeSurplus(0))).toEqual(["shorter", "short", "long", "now"]);
});

test("a command that is being read stays, and no other is removed instead", () => {
  const read = command("read", 1);
  read.isBeingRead = true;
  for (const each of [read, command("second", 2), command("third", 3)]) ended.add(each);
  expect(names(ended.takeSurplus(2))).toEqual([]);
  read.isBeingRead = false;
  ended.add(command("fourth", 4));
  expect(names(ended.takeSurplus(2))).toEqual(["read", "second"]);
});

test("logs are dropped in the same order, until the rest is small enough", () => {
  ended.restore(command("long", 300, 50));
  ended.restore(command("short", 200, 60));
  ended.restore(command("silent", 100));
  ended.add(command("now", 400, 40));
  expect(names(ended.withSurplusLogs(150))).toEqual([]);
  expect(names(ended.withSurplusLogs(149))).toEqual(["short"]);
  expect(names(ended.withSurplusLogs(40))).toEqual(["short", "long"]);
});
