// @module-tag gvisor
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Sandbox } from "@atoll/engine";
import { ImportedRecord, type SandboxId } from "@atoll/protocol";
import { FileObjectStore, type ObjectStore, type StoreConfig } from "@atoll/storage";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { CheckpointArchive } from "../../packages/server/src/persistence/checkpoint-archive.ts";
import { createLog } from "../../packages/server/src/telemetry/log.ts";
import { watchStore, type StoreCall } from "../../packages/server/test/persistence/watch-store.ts";
import { collect } from "../support/archive-action.ts";
import { CrashingArchive } from "../support/crashing-server.ts";
import type { Fault } from "../support/object-servers/faults.ts";
import { openTestS3, type TestS3 } from "../support/object-servers/test-s3.ts";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const log = createLog("silent");
const { signal } = new AbortController();
const generous = { timeout: 120_000, interval: 20 };

let s3: TestS3;
beforeAll(async () => {
  s3 = await openTestS3();
});
afterAll(() => s3.close());

function recordOf({ record }: Sandbox): ImportedRecord {
  const { id, driver, template, limits, createdAtMs, labels } = record;
  return ImportedRecord.parse({ id, driver, template, limits, createdAtMs, labels });
}

const archiveOf = ({ engine, dataDir }: TestEngine, store: ObjectStore): Promise<CheckpointArchive> =>
  CheckpointArchive.open({ store, engine, scratchDir: join(dataDir, "transfers"), log });

async function openEngine(dataDir?: string): Promise<TestEngine> {
  const host = await openTestEngine(dataDir === undefined ? {} : { dataDir });
  onTestFinished(() => host.dispose());
  return host;
}

/** Creates the default template. The files of both machines are the same, so their templates have the same name. */
async function makeTemplate({ engine }: TestEngine): Promise<void> {
  await (await engine.create({})).kill();
}

async function makeDirectory(): Promise<string> {
  const dir = await makeDataDir();
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

async function openFileStore(): Promise<FileObjectStore> {
  const store = await FileObjectStore.open(join(await makeDirectory(), "store"));
  onTestFinished(() => store.close());
  return store;
}

const stores: [string, () => Promise<ObjectStore>][] = [
  ["a directory", openFileStore],
  ["a bucket", async () => s3.open({ prefix: "moving" })],
];

test.for(stores)(
  "a sandbox moves to another engine and back through %s, and only new parts are sent",
  async ([, open]) => {
    const sent: StoreCall[] = [];
    const after = (call: StoreCall): void => void (call.name === "upload" && sent.push(call));
    const store = watchStore(await open(), { after });
    const [here, there] = [await openEngine(), await openEngine()];
    const [near, far] = [await archiveOf(here, store), await archiveOf(there, store)];
    await makeTemplate(there);
    const sandbox = await here.engine.create({});
    const record = recordOf(sandbox);
    const counting = await sandbox.spawn(
      { argv: ["bash", "-c", "i=0; while read word; do i=$((i+1)); echo $word >>words; echo $i; done"], stdin: true },
      { keep: true },
    );
    await counting.writeStdin("one\n");
    await new Conversation(counting).until(/1\n/);
    await runIn(sandbox, "head -c 3000000 /dev/urandom >noise; seq 200000 >numbers");
    await here.engine.pause(sandbox.id);
    const first = await near.publish(sandbox.id, 1, { epoch: 1, signal });
    expect(sent).toHaveLength(first.parts.length);
    const files = first.parts.find(({ name }) => name === `layer/${sandbox.id}-1`);
    expect(files?.sizeBytes).toBeGreaterThan(3_000_000);
    await here.engine.release(sandbox.id);

    const moved = await far.fetch(sandbox.id, 1, record, { signal });
    await there.engine.resume(sandbox.id);
    const going = moved.attach(counting.streamId, { stdoutBytes: 2, stderrBytes: 0 });
    await going.writeStdin("two\n");
    expect(await new Conversation(going).until(/\n/)).toBe("2\n");
    await there.engine.pause(sandbox.id);
    sent.length = 0;
    const second = await far.publish(sandbox.id, 2, { epoch: 2, signal });
    expect(sent.map(({ key }) => key)).not.toContain(files?.key);
    expect(second.parts.map(({ key }) => key)).toContain(files?.key);
    const sentBytes = sent.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
    const newParts = second.parts.filter(({ key }) => !first.parts.some((part) => part.key === key));
    expect(sentBytes).toBe(newParts.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    await there.engine.release(sandbox.id);

    const back = await near.fetch(sandbox.id, 2, record, { signal });
    await here.engine.resume(sandbox.id);
    const again = back.attach(counting.streamId, { stdoutBytes: 4, stderrBytes: 0 });
    await again.writeStdin("three\n");
    expect(await new Conversation(again).until(/\n/)).toBe("3\n");
    expect((await runIn(back, "cat words; wc -c <noise; tail -1 numbers")).output).toBe(
      "one\ntwo\nthree\n3000000\n200000\n",
    );
    for (const { dataDir } of [here, there]) expect(await readdir(join(dataDir, "transfers"))).toEqual([]);
  },
);

describe("a server that is killed with SIGKILL", () => {
  const prefix = "killed";
  let store: ObjectStore;
  beforeAll(() => {
    store = s3.open({ prefix });
  });
  const config = (): StoreConfig => ({ ...s3.config, prefix }) as StoreConfig;

  /** Makes the server never answer matching requests. Returns a function that says whether there was such a request. */
  function holdRequests(matches: (request: { operation: string; key: string }) => boolean): () => boolean {
    let isHeld = false;
    s3.server.faults = (request): Fault | undefined => {
      if (!matches(request)) return undefined;
      isHeld = true;
      return { do: "hold", until: new Promise(() => {}) };
    };
    return () => isHeld;
  }

  const keysOf = async (word: string): Promise<string[]> => {
    const keys: string[] = [];
    for await (const { key } of store.list("")) if (key.includes(word)) keys.push(key);
    return keys;
  };
  const isWhole = new Set(["PutObject", "CompleteMultipartUpload"]);
  const sentImages = (): number =>
    s3.server.seen.filter(({ operation, key }) => isWhole.has(operation) && key.includes("/memory/")).length;

  test("in the middle of an upload, a fetch or a collection, loses nothing and sends nothing twice", async () => {
    const here = await openTestEngine();
    // Another engine finds and ends everything that the killed ones leave.
    onTestFinished(async () => {
      await here.engine.close();
      await (await openTestEngine({ dataDir: here.dataDir })).dispose();
    });
    const sandbox = await here.engine.create({});
    const record = recordOf(sandbox);
    const id: SandboxId = sandbox.id;
    for (const n of [1, 2, 3]) {
      await sandbox.files.write("/home/user/number", String(n));
      await here.engine.pause(id);
      if (n < 3) await here.engine.resume(id);
    }
    await here.engine.close();
    const dataDirs = [here.dataDir, await makeDirectory()] as const;

    s3.server.calm();
    const isUploading = holdRequests(({ operation, key }) => operation === "PutObject" && key.includes("layers/"));
    const publisher = new CrashingArchive(dataDirs[0], config(), { do: "publish", id, n: 1 });
    await during(publisher, async () => {
      expect(isUploading()).toBe(true);
      expect(await keysOf("/memory/")).toHaveLength(1);
    });
    await publisher.killHard();
    expect(await keysOf("manifest.json")).toEqual([]);
    s3.server.calm();
    const successor = await openTestEngine({ dataDir: dataDirs[0] });
    onTestFinished(() => successor.engine.close());
    const near = await archiveOf(successor, store);
    for (const n of [1, 2, 3]) await near.publish(id, n, { epoch: 1, signal });
    await successor.engine.close();
    // The image of the first checkpoint was stored before.
    expect(sentImages()).toBe(2);

    const isFetching = holdRequests(({ operation, key }) => operation === "GetObject" && key.includes("/memory/"));
    const fetcher = new CrashingArchive(dataDirs[1], config(), { do: "fetch", record, n: 3 });
    await during(fetcher, () => expect(isFetching()).toBe(true));
    await fetcher.killHard();
    s3.server.calm();

    // The first collection retires two checkpoints, the next one condemns their images, and the last one is killed
    // after it has removed one of them.
    const graceMs = 1_000;
    const startMs = Date.now();
    const action = (look: number) =>
      ({ do: "collect", keepLast: 1, nowMs: startMs + look * 2 * graceMs, graceMs }) as const;
    await collect(store, action(0));
    await collect(store, action(1));
    expect(await keysOf("/memory/")).toHaveLength(3);
    let removals = 0;
    const isRemoving = holdRequests(
      ({ operation, key }) => operation === "DeleteObject" && key.includes("/memory/") && ++removals > 1,
    );
    const collector = new CrashingArchive(dataDirs[0], config(), action(2));
    await during(collector, () => expect(isRemoving()).toBe(true));
    await collector.killHard();
    s3.server.calm();
    await collect(store, action(3));
    expect(await keysOf("/memory/")).toHaveLength(1);

    const there = await openEngine(dataDirs[1]);
    const archive = await archiveOf(there, store);
    expect(await readdir(join(dataDirs[1], "transfers"))).toEqual([]);
    expect((await archive.list(id)).map(({ n }) => n)).toEqual([3]);
    await makeTemplate(there);
    const moved = await archive.fetch(id, 3, record, { signal });
    await there.engine.resume(id);
    expect((await runIn(moved, "cat number")).output).toBe("3");
  });
});

/** Waits until the condition holds while the worker runs, and fails at once if the worker ends before. */
async function during(worker: CrashingArchive, isSo: () => void | Promise<void>): Promise<void> {
  const ended = worker.until(() => false);
  await Promise.race([vi.waitFor(isSo, generous), ended]);
  ended.catch(() => undefined);
}
