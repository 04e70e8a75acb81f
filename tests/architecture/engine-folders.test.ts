import { posix } from "node:path";
import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/**
 * The folders of the engine, the lowest first. Code in a folder uses only folders below it. Files beside the folders
 * bind the folders together.
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

/**
 * A pause that a crash cut off is finished by the operation's own code, so that there is only one way to finish a
 * pause.
 */
const exceptions = [
  "lifecycle/repair-pause.ts imports operations/bound-layers.ts",
  "lifecycle/repair-pause.ts imports operations/pause-work.ts",
  "lifecycle/repair-pause.ts imports operations/pause.ts",
];

/** A lower folder may use the type of a sandbox's life, but not its code. */
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

/** Imports from a folder of another folder that is not below it. */
const upwards = sources
  .flatMap(importsOf)
  .filter(({ from, to }) => [from, to].every((path) => folderOf(path) !== ".") && folderOf(from) !== folderOf(to))
  .filter(({ from, to }) => floorOf(to) >= floorOf(from));

test("the table of floors names exactly the folders of the engine", () => {
  const folders = new Set(sources.map(folderOf).filter((folder) => folder !== "."));
  expect([...folders].toSorted()).toEqual(floors.flat().toSorted());
});

test("no folder of the engine imports a folder above or beside it, except for the listed files", () => {
  const used = upwards.filter(({ isType }) => !isType).map(({ from, to }) => `${from} imports ${to}`);
  expect(used.toSorted()).toEqual(exceptions);
});

test("no folder of the engine imports a type from above, except for the listed types", () => {
  const known = new Set(upwards.filter(({ isType }) => isType).map(({ to }) => to));
  expect([...known].toSorted()).toEqual(typesKnownBelow);
});
