import { posix } from "node:path";
import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/**
 * The folders of the engine, the lowest first: what is in one uses what is below it. Files beside the folders bind them
 * together.
 */
const floors = [
  ["support"],
  ["guest", "store", "templates"],
  ["idle", "limits"],
  ["doctor", "drivers"],
  ["checkpoints"],
  ["snapshots"],
  ["lifecycle"],
  ["operations", "transfer"],
];

/** The repair of a pause ends as the pause itself does: there is one way to finish one, and it is the operation's. */
const exceptions = [
  "lifecycle/repair-pause.ts imports operations/bound-layers.ts",
  "lifecycle/repair-pause.ts imports operations/pause-work.ts",
  "lifecycle/repair-pause.ts imports operations/pause.ts",
];

/** What is worked on is known by its type further down, too. */
const typesKnownBelow = ["lifecycle/sandbox-life.ts"];

interface Import {
  from: string;
  to: string;
  isType: boolean;
}

const root = "packages/engine/src/";
const sources = listFiles()
  .filter((path) => path.startsWith(root) && path.endsWith(".ts"))
  .map((path) => path.slice(root.length));

const folderOf = (path: string): string => posix.dirname(path).split("/")[0] ?? ".";

const floorOf = (path: string): number => floors.findIndex((floor) => floor.includes(folderOf(path)));

function importsOf(from: string): Import[] {
  const statements = readText(root + from).matchAll(/\b(?:import|export)\s+(type\b)?[^;"]*?\bfrom\s+"(\.[^"]+)"/g);
  return [...statements].map(([, type, target = ""]) => ({
    from,
    to: posix.join(posix.dirname(from), target),
    isType: type !== undefined,
  }));
}

/** From a folder to another that is not below it. */
const upwards = sources
  .flatMap(importsOf)
  .filter(({ from, to }) => [from, to].every((path) => folderOf(path) !== ".") && folderOf(from) !== folderOf(to))
  .filter(({ from, to }) => floorOf(to) >= floorOf(from));

test("every folder of the engine has its floor, and every floor its folder", () => {
  const folders = new Set(sources.map(folderOf).filter((folder) => folder !== "."));
  expect([...folders].toSorted()).toEqual(floors.flat().toSorted());
});

test("nothing in the engine uses what is above it or beside it, but for what is named", () => {
  const used = upwards.filter(({ isType }) => !isType).map(({ from, to }) => `${from} imports ${to}`);
  expect(used.toSorted()).toEqual(exceptions);
});

test("of what is above it nothing in the engine knows a type, but for those that are named", () => {
  const known = new Set(upwards.filter(({ isType }) => isType).map(({ to }) => to));
  expect([...known].toSorted()).toEqual(typesKnownBelow);
});
