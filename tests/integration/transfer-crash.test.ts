// @module-tag gvisor
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxId } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CrashingServer } from "../support/crashing-server.ts";
import { packSandbox, readPackage, withCopy } from "../support/sandbox-package.ts";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

let id: SandboxId;
let packed: string;
beforeAll(async () => {
  const host = await openTestEngine();
  const sandbox = await host.engine.create({});
  ({ id } = sandbox);
  await sandbox.files.write("/home/user/note", "kept as it was");
  await host.engine.pause(id);
  packed = await packSandbox(host.engine, id);
  await host.dispose();
});
afterAll(() => rm(packed, { recursive: true, force: true }));

/** Kills a server at this step, and opens an engine on its data directory. */
async function afterDeath(step: string, ...words: string[]): Promise<TestEngine> {
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, ...words, step);
  await server.until((fact) => fact.step === step);
  await server.killHard();
  return openTestEngine({ dataDir });
}

async function leftIn({ dataDir }: TestEngine): Promise<string[]> {
  const found = await Promise.all(["sandboxes", "layers"].map((name) => readdir(join(dataDir, name)).catch(() => [])));
  return found.flat();
}

test.for(["import: parts", "import: manifest"])(
  "a server that dies at %s leaves nothing, and the sandbox can be imported again",
  async (step) => {
    const host = await withCopy(packed, (copy) => afterDeath(step, "import", copy));
    try {
      expect(host.engine.list()).toEqual([]);
      expect(await leftIn(host)).toEqual([]);
      const sandbox = await withCopy(packed, async (copy) => host.engine.importSandbox(await readPackage(copy)));
      expect(sandbox.state).toBe("paused");
    } finally {
      await host.dispose();
    }
  },
);

test("a server that dies after it wrote the record leaves a paused sandbox", async () => {
  const host = await withCopy(packed, (copy) => afterDeath("import: recorded", "import", copy));
  try {
    const sandbox = host.engine.get(id);
    expect(sandbox.state).toBe("paused");
    await host.engine.resume(id);
    expect((await runIn(sandbox, "cat note")).output).toBe("kept as it was");
  } finally {
    await host.dispose();
  }
});

test.for([
  ["release: intent", "running"],
  ["release: removed", "paused"],
] as const)("a server that dies at %s of a %s sandbox leaves nothing of it", async ([step, state]) => {
  const host = await afterDeath(step, "release", state);
  try {
    expect(host.engine.list()).toEqual([]);
    expect(await leftIn(host)).toEqual([]);
  } finally {
    await host.dispose();
  }
});

test.for([
  ["import checkpoint: verified", [2]],
  ["import checkpoint: placed", [1, 2]],
] as const)(
  "a server that dies at %s leaves a running sandbox, and the complete checkpoint or none",
  async ([step, known]) => {
    const host = await afterDeath(step, "fetch-back");
    try {
      const { engine, dataDir } = host;
      const [record] = engine.list();
      if (record === undefined) throw new Error("The sandbox is gone");
      expect(record.state).toBe("running");
      expect((await runIn(engine.get(record.id), "cat note")).output).toBe("two");
      expect((await engine.checkpoints(record.id)).map(({ n }) => n)).toEqual(known);
      const names = await readdir(join(dataDir, "sandboxes", record.id, "checkpoints"));
      expect(names.toSorted()).toEqual(known.map(String));
      if (known.length === 1) return;
      await engine.rollback(record.id, 1);
      expect((await runIn(engine.get(record.id), "cat note")).output).toBe("one");
    } finally {
      await host.dispose();
    }
  },
);
