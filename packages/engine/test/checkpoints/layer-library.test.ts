import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { LayerLibrary } from "../../src/checkpoints/layer-library.ts";
import { TreePacker } from "../../src/checkpoints/tree-packer.ts";
import { DataLayout } from "../../src/store/layout.ts";
import { caught } from "../support/caught.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

const run = promisify(execFile);

test("a layer that cannot be removed does not prevent the removal of others, and is reported", async () => {
  const directory = new TemporaryDirectory();
  onTestFinished(() => directory[Symbol.dispose]());
  const layout = new DataLayout(directory.path);
  for (const name of ["a", "b", "c"]) {
    mkdirSync(join(layout.sealedDir, name, "trees"), { recursive: true });
    writeFileSync(join(layout.sealedDir, name, "trees", "file"), name);
  }
  const busy = join(layout.sealedDir, "a", "trees");
  await run("mount", ["-t", "tmpfs", "tmpfs", busy]);
  const library = new LayerLibrary(layout, { mergerPath: "/none", packer: new TreePacker("/none") });
  try {
    expect(await caught(library.collect())).toMatchObject({ code: "EBUSY" });
    expect(readdirSync(layout.sealedDir)).toEqual(["a"]);
  } finally {
    await run("umount", [busy]);
  }
  expect(await library.collect()).toEqual(["a"]);
});
