import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FileObjectStore, type ObjectStore, type SweepOptions } from "@atoll/storage";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readConfig } from "../../src/config/read-config.ts";
import { openServerStores } from "../../src/persistence/server-stores.ts";
import { StoreSweeper } from "../../src/persistence/store-sweeper.ts";
import { log } from "./archive-lab.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-sweeper-"));
});
afterEach(() => rm(dir, { recursive: true }));

/** Leaves bytes of a writer that has ended, which belong to no object. */
async function leaveBytes(path: string): Promise<void> {
  await mkdir(join(path, "objects", "left~"), { recursive: true });
  await writeFile(join(path, "objects", "left~", `${"0".repeat(24)}-1`), "half of it");
}

async function sweeping(sweep: (options?: SweepOptions) => Promise<number>): Promise<ObjectStore> {
  const store = await FileObjectStore.open(join(dir, "store"));
  return Object.assign(store, { sweep });
}

test("each store of a server is swept, whichever setting names it", async () => {
  const paths = ["metadata", "checkpoints", "snapshots"].map((name) => join(dir, name));
  const [metadata = "", checkpoints = "", snapshots = ""] = paths;
  await writeFile(join(dir, "config.json"), "{}");
  const flags = ["--metadata-store", metadata, "--checkpoint-store", checkpoints, "--snapshot-store", snapshots];
  const { config } = await readConfig({
    argv: ["--config", join(dir, "config.json"), "--data-dir", dir, ...flags],
    env: {},
  });
  const stores = await openServerStores(config);
  await stores.probed;
  for (const path of paths) await leaveBytes(path);
  const sweeper = new StoreSweeper({ stores: stores.all, log });
  await sweeper.sweep();
  for (const path of paths) expect(await readdir(join(path, "objects"))).toEqual([]);
  await sweeper.close();
  await stores.close();
});

test("a store that cannot be swept does not prevent the sweep of others", async () => {
  const swept: string[] = [];
  const broken = await sweeping(async () => {
    throw new Error("The bucket is gone");
  });
  const sound = await sweeping(async () => swept.push("sound"));
  await new StoreSweeper({ stores: [broken, sound], log }).sweep();
  expect(swept).toEqual(["sound"]);
});

test("sweeps are repeated until the sweeper is closed, which aborts the current one", async () => {
  let times = 0;
  let onThird = (): void => undefined;
  const third = new Promise<void>((resolve) => {
    onThird = resolve;
  });
  const store = await sweeping(async ({ signal } = {}) => {
    times += 1;
    if (times < 3) return 0;
    onThird();
    return new Promise((_, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason as Error));
    });
  });
  const sweeper = new StoreSweeper({ stores: [store], log, intervalMs: 1 });
  sweeper.start();
  await third;
  await sweeper.close();
  expect(times).toBe(3);
});

test("a sweep learns which unfinished uploads belong to servers", async () => {
  let isOurs: SweepOptions["isOurs"];
  const store = await sweeping(async (options) => {
    isOurs = options?.isOurs;
    return 0;
  });
  await new StoreSweeper({ stores: [store], log }).sweep();
  const name = `${"0".repeat(64)}.br.${"0".repeat(64)}.00000000`;
  expect(isOurs?.(`layers/${"a".repeat(20)}-1/${name}`)).toBe(true);
  expect(isOurs?.("snapshots/tools/files-00000000-0000-4000-8000-000000000000")).toBe(true);
  expect(isOurs?.("checkpoints/epoch-10.pt")).toBe(false);
  expect(isOurs?.("snapshots/db.dump")).toBe(false);
});
