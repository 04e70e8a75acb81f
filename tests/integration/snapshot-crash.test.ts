import { access, mkdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { SandboxId, SnapshotName, type DriverName } from "@atoll/protocol";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { expect, test } from "vitest";
import { SnapshotStore } from "../../packages/server/src/snapshots/snapshot-store.ts";
import { openTestLibrary, testFiles, testUser } from "../../packages/server/test/support/test-library.ts";
import { CrashingLibrary, CrashingServer } from "../support/crashing-server.ts";
import { needsDriver } from "../support/drivers.ts";
import { Conversation, openTestEngine, runIn } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const deadline = { timeout: 120_000 };
const dayMs = 24 * 3_600_000;

test.for<[step: string, driver: DriverName]>([
  ["snapshot: frozen", "gvisor"],
  ["snapshot: copied", "gvisor"],
  ["snapshot: frozen", "local"],
])("a server that dies at %s leaves a sandbox of driver %s that goes on", deadline, async ([step, driver], context) => {
  needsDriver(driver, context);
  const dataDir = await makeDataDir();
  const server = new CrashingServer(dataDir, "snapshot", join(dataDir, "output.log"), step, driver);
  const { sandboxId, streamId = 0 } = await server.until((fact) => fact.streamId !== undefined);
  await server.until((fact) => fact.step === step);
  await server.killHard();

  const host = await openTestEngine({ dataDir });
  try {
    const sandbox = host.engine.get(SandboxId.parse(sandboxId));
    expect(sandbox.state).toBe("running");
    const counting = sandbox.attach(streamId, { stdoutBytes: 4, stderrBytes: 0 });
    await counting.writeStdin("three\n");
    expect(await new Conversation(counting).until(/\n/)).toBe("3\n");
    expect((await runIn(sandbox, "cat /home/user/count")).output).toBe("1\n2\n3\n");
    await expect(access(join(dataDir, "copies"))).rejects.toThrow("ENOENT");
    await host.engine.saveFiles(sandbox.id, join(dataDir, "saved"), { signal: AbortSignal.timeout(60_000) });
  } finally {
    await host.dispose();
  }
});

async function keysIn(store: ObjectStore): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of store.list("snapshots/")) keys.push(key);
  return keys;
}

test.for<[what: "take" | "remove", when: "before" | "after", call: string, isThere: boolean]>([
  ["take", "before", "upload", false],
  ["take", "after", "upload", false],
  ["take", "after", "put", true],
  ["remove", "before", "remove", true],
  ["remove", "after", "remove", false],
])("a server that dies in a %s %s its store's %s leaves a complete snapshot or none", deadline, async (dies) => {
  const [what, when, call, isThere] = dies;
  const directory = await makeDataDir();
  await mkdir(join(directory, "store"));
  const crashing = new CrashingLibrary(directory, what, when, call);
  await crashing.until((fact) => fact.step === `${when} ${call}`);
  await crashing.killHard();

  const store = await FileObjectStore.open(join(directory, "store"));
  const library = await openTestLibrary(directory, store);
  const name = SnapshotName.parse("tools");
  expect((await library.list(testUser)).map((snapshot) => snapshot.name)).toEqual(isThere ? ["tools"] : []);
  if (!isThere) await library.take(SandboxId.parse("s".repeat(20)), name, testUser);
  // The incomplete parts are collected after a day without use, and nothing else is.
  const kept = new SnapshotStore(store);
  const nowMs = Date.now();
  await kept.collect({ nowMs });
  await kept.collect({ nowMs: nowMs + 2 * dayMs });
  expect(await keysIn(store)).toHaveLength(2);
  const files = await library.use(name, testUser, async (source) => readFile(await source.files.archive()));
  expect(testFiles.equals(files)).toBe(true);
  await library.close();
  await store.close();
  await rm(directory, { recursive: true, force: true });
});
