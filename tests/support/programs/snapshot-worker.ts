/**
 * A library of snapshots that a test kills: it takes or removes a snapshot and stops for ever before or after one of
 * the calls to its store. Run as `snapshot-worker.ts <directory> take|remove before|after <call>`.
 */
import { writeSync } from "node:fs";
import { join } from "node:path";
import { SandboxId, SnapshotName } from "@atoll/protocol";
import { FileObjectStore, type ObjectStore } from "@atoll/storage";
import { openTestLibrary, testUser } from "../../../packages/server/test/support/test-library.ts";

const [directory = "", what = "", when = "", stopAt = ""] = process.argv.slice(2);

async function stop(): Promise<never> {
  writeSync(1, `${JSON.stringify({ step: `${when} ${stopAt}` })}\n`);
  // Without a timer the process would end by itself.
  setInterval(() => undefined, 1_000_000);
  return new Promise(() => undefined);
}

function stoppingAt(store: ObjectStore): ObjectStore {
  return new Proxy(store, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      if (name !== stopAt) return value.bind(target) as unknown;
      return async (...words: unknown[]) => {
        if (when === "before") await stop();
        await (value.apply(target, words) as Promise<unknown>);
        return stop();
      };
    },
  });
}

const store = await FileObjectStore.open(join(directory, "store"));
const name = SnapshotName.parse("tools");
const id = SandboxId.parse("s".repeat(20));
if (what === "remove") await (await openTestLibrary(directory, store)).take(id, name, testUser);
const library = await openTestLibrary(directory, stoppingAt(store));
if (what === "take") await library.take(id, name, testUser);
else await library.remove(name, testUser);
