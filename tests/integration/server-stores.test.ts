import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { FileObjectStore } from "@atoll/storage";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer } from "../support/test-server.ts";

test("a server whose store does not answer names the setting, and releases the data directory", async () => {
  const dataDir = await makeDataDir();
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const credentials = { accessKeyId: "id", secretAccessKey: "secret" };
  const endpoint = "http://127.0.0.1:9";
  const unreachable = { kind: "s3", bucket: "bucket-1", region: "here", endpoint, credentials, maxAttempts: 1 };
  const flags = ["--metadata-store", JSON.stringify(unreachable)];
  await expect(startTestServer({ dataDir, flags })).rejects.toMatchObject({
    code: "unavailable",
    message: expect.stringMatching(/^Cannot start: metadataStore: /),
    details: { setting: "metadataStore" },
  });
  const server = await startTestServer({ dataDir });
  expect((await new ApiClient(server.url, "").fetch("GET", "/readyz")).status).toBe(200);
  await server.dispose();
});

test(
  "a server keeps as many checkpoints of a sandbox in the store as its setting says, and none of a killed one",
  { tags: "gvisor" },
  async () => {
    const path = await makeDataDir();
    onTestFinished(() => rm(path, { recursive: true, force: true }));
    const store = await FileObjectStore.open(path);
    const published = async (): Promise<string[]> => {
      const keys: string[] = [];
      for await (const { key } of store.list("checkpoints/")) if (key.endsWith("/manifest.json")) keys.push(key);
      return keys.map((key) => key.split("/")[2] ?? "");
    };
    await using server = await startTestServer({
      flags: ["--checkpoint-store", path, "--keep-checkpoints", "2"],
    });
    const api = new ApiClient(server.url, server.key);
    const { sandbox } = await api.create({ driver: "gvisor", persistent: true });
    const at = `/sandboxes/${sandbox.id}`;
    const paused: string[] = [];
    for (const _ of [1, 2, 3]) {
      const { body } = await api.ask<{ checkpoint: number }>("POST", `${at}/pause`, {});
      paused.push(String(body.checkpoint));
      await expect.poll(published).toContain(paused.at(-1));
      await api.ask("POST", `${at}/resume`, {});
    }
    await expect.poll(published).toEqual(paused.slice(1));
    expect(await readdir(join(server.dataDir, "transfers"))).toEqual([]);
    await api.ask("DELETE", at);
    expect(await published()).toEqual([]);
  },
);
