import { createHash, randomBytes } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { StoreProcess } from "../support/store-process/store-process.ts";
import { makeDataDir } from "../support/test-root.ts";

test("a full disk is reported as no_space, damages nothing, and works again when there is room", async () => {
  const directory = await makeDataDir();
  try {
    const content = randomBytes(3 << 20);
    const sha256 = createHash("sha256").update(content).digest("hex");
    const path = join(directory, "source");
    const disk = join(directory, "disk");
    await writeFile(path, content);
    await mkdir(disk);
    const task = { do: "fill", path, sizeBytes: content.length, sha256 } as const;
    const child = new StoreProcess(disk, task, { diskBytes: 1 << 20 });
    expect(await child.end()).toBe("exit 0");
    const filled = child.facts.find((fact) => fact.filled !== undefined)?.filled;
    expect(filled?.refusals).toEqual(["no_space", "no_space", "no_space"]);
    expect(filled?.kept).toBeGreaterThan(5);
    expect(filled?.listed).toBe(filled?.kept);
    expect(filled?.worksAgain).toBe(true);
  } finally {
    await rm(directory, { recursive: true });
  }
});
