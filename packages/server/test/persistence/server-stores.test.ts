import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describeConfig, readConfig } from "../../src/config/read-config.ts";
import { openServerStores } from "../../src/persistence/server-stores.ts";

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "atoll-stores-"));
  await writeFile(join(dataDir, "config.json"), "{}");
});
afterEach(() => rm(dataDir, { recursive: true }));

const read = (...flags: string[]) =>
  readConfig({ argv: ["--config", join(dataDir, "config.json"), "--data-dir", dataDir, ...flags], env: {} });

test("without settings all three are one store in the data directory, and it is probed", async () => {
  const { config } = await read();
  const stores = await openServerStores(config);
  await stores.probed;
  expect(stores.metadata?.place).toContain(join(dataDir, "store"));
  expect(stores.checkpoints).toBe(stores.metadata);
  expect(stores.snapshots).toBe(stores.metadata);
  await stores.close();
  await stores.close();
  expect(await readdir(join(dataDir, "store", "writers"))).toEqual([]);
});

test("each setting is a directory, a store as JSON, or none", async () => {
  const json = JSON.stringify({ kind: "file", path: join(dataDir, "elsewhere") });
  const flags = [
    "--metadata-store",
    join(dataDir, "elsewhere"),
    "--checkpoint-store",
    json,
    "--snapshot-store",
    "none",
  ];
  const { config } = await read(...flags);
  const stores = await openServerStores(config);
  await stores.probed;
  expect(stores.metadata?.place).toContain("elsewhere");
  expect(stores.checkpoints).toBe(stores.metadata);
  expect(stores.snapshots).toBeUndefined();
  await stores.close();
  expect(await readdir(dataDir)).not.toContain("store");
});

test.for<[string, RegExp]>([
  ["relative/path", /metadataStore \(from --metadata-store\): an absolute path/],
  ["nobody", /metadataStore \(from --metadata-store\): an absolute path/],
  ['{"kind":"s3","bucket":"bucket-1","buckett":"x"}', /metadataStore \(from --metadata-store\):.*"buckett"/s],
  ['{"kind":"tape"}', /metadataStore/],
  ["{", /metadataStore/],
])("%s is refused by name", async ([value, message]) => {
  await expect(read("--metadata-store", value)).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(message),
  });
});

test("a store that cannot be opened is refused with its setting", async () => {
  await mkdir(join(dataDir, "taken"));
  await writeFile(join(dataDir, "taken", "objects"), "a file where a directory must be");
  const { config } = await read("--checkpoint-store", join(dataDir, "taken"));
  await expect(openServerStores(config)).rejects.toMatchObject({
    message: expect.stringMatching(/^Cannot start: checkpointStore: /),
    details: { setting: "checkpointStore" },
  });
});

test("a store that does not answer is reported with its setting when it is awaited", async () => {
  const credentials = { accessKeyId: "id", secretAccessKey: "very-secret" };
  const unreachable = {
    kind: "s3",
    bucket: "bucket-1",
    endpoint: "http://127.0.0.1:9",
    region: "x",
    credentials,
    maxAttempts: 1,
  };
  const settings = await read("--snapshot-store", JSON.stringify(unreachable));
  expect(JSON.stringify(describeConfig(settings))).not.toContain("very-secret");
  const stores = await openServerStores(settings.config);
  await expect(stores.probed).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/^Cannot start: snapshotStore: /),
    details: { setting: "snapshotStore", reason: "unreachable" },
  });
  await stores.close();
});
