/**
 * A server that a test kills while it moves or collects checkpoints: run as `archive-worker.ts <dataDir> <store as
 * JSON> <action as JSON>`. It prints `done` on stdout when the action is complete.
 */
import { writeSync } from "node:fs";
import { join } from "node:path";
import { Engine } from "@atoll/engine";
import { openStore, type StoreConfig } from "@atoll/storage";
import { CheckpointArchive } from "../../../packages/server/src/persistence/checkpoint-archive.ts";
import { createLog } from "../../../packages/server/src/telemetry/log.ts";
import { guestBinaryPath } from "../../../tools/setup/guest.mjs";
import { collect, type ArchiveAction } from "../archive-action.ts";

const [dataDir = "", storeText = "", actionText = ""] = process.argv.slice(2);
const action = JSON.parse(actionText) as ArchiveAction;
const store = await openStore(JSON.parse(storeText) as StoreConfig);
const log = createLog("silent");

async function move(moving: Exclude<ArchiveAction, { do: "collect" }>): Promise<void> {
  const engine = await Engine.open({ dataDir, guestPath: guestBinaryPath() });
  const archive = await CheckpointArchive.open({ store, engine, scratchDir: join(dataDir, "transfers"), log });
  const { signal } = new AbortController();
  if (moving.do === "publish") await archive.publish(moving.id, moving.n, { epoch: 1, signal });
  else await archive.fetch(moving.record.id, moving.n, moving.record, { signal });
  await engine.close();
}

await (action.do === "collect" ? collect(store, action) : move(action));
writeSync(1, `${JSON.stringify({ done: true })}\n`);
await store.close();
