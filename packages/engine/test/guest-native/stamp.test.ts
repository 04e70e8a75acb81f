import { mkdirSync, writeFileSync } from "node:fs";
import { beforeAll, expect, test } from "vitest";
import { TreePacker } from "../../src/checkpoints/tree-packer.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";
import { buildTimeoutMs, guestProgram } from "./guest-program.ts";

let packer: TreePacker;
beforeAll(async () => {
  packer = new TreePacker(await guestProgram("sanitized"));
}, buildTimeoutMs);

test("stamps that are taken together equal those that are taken one by one", async () => {
  using temporary = new TemporaryDirectory();
  const groups = ["a", "b", "c"].map((name) => [temporary.join(name), temporary.join(`${name}2`)]);
  for (const [index, tree] of groups.flat().entries()) {
    mkdirSync(tree);
    for (let file = 0; file < index * 100; file += 1) writeFileSync(`${tree}/file-${file}`, "");
  }
  const { signal } = new AbortController();
  const alone = await Promise.all(groups.map((group) => packer.stamp(group, signal)));
  expect(await packer.stamps(groups, signal)).toEqual(alone);
  expect(new Set(alone).size).toBe(3);
});
