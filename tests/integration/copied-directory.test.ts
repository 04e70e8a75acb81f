// @module-tag gvisor
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { SandboxInfo } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { sharedDirectory } from "../support/shared-store.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
/** The time covers the expiry of a lease. */
const longTimeout = { timeout: 120_000 };

async function storeFlags(...more: string[]): Promise<string[]> {
  const store = await sharedDirectory();
  onTestFinished(() => store[Symbol.asyncDispose]());
  return [...store.flags(), ...more];
}

test(
  "a copy of a data directory, started while the original runs, is a new server and does not touch the first one",
  longTimeout,
  async () => {
    const flags = await storeFlags();
    const first = await startTestServer({ flags });
    onTestFinished(() => first.dispose());
    const api = new ApiClient(first.url, first.key);
    const { sandbox } = await api.create(persistent);
    const { id } = sandbox;
    await api.run(id, { shell: "echo kept >/dev/shm/note" });

    const dataDir = await makeDataDir();
    await promisify(execFile)("cp", ["-a", `${first.dataDir}/.`, dataDir]);
    const copy = await startTestServer({ dataDir, flags });
    onTestFinished(() => copy.dispose());
    const atCopy = new ApiClient(copy.url, first.key);

    const seen = await atCopy.ask<SandboxInfo>("GET", `/sandboxes/${id}`);
    expect(seen.body).toMatchObject({ state: "running", server: { url: first.url } });
    expect((await api.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
    // The first server runs the sandbox, and stores it for the copy as for any other server.
    expect((await atCopy.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
    expect(await eventOf(first, "sandbox.handed_over", id)).toMatchObject({ toServer: { url: copy.url } });
  },
);

test(
  "a data directory that only looks like a copy gets its sandboxes back when their leases have expired",
  longTimeout,
  async () => {
    const flags = await storeFlags("--lease-ttl-ms", "3000");
    const first = await startTestServer({ flags });
    const { dataDir, key } = first;
    const { sandbox } = await new ApiClient(first.url, key).create(persistent);
    await new ApiClient(first.url, key).run(sandbox.id, { shell: "echo kept >/dev/shm/note" });
    await first.stop();

    const path = join(dataDir, "server.json");
    const text = await readFile(path, "utf8");
    await writeFile(`${path}.new`, text.replace(/"inode":"\d+"/, '"inode":"1"'));
    await rename(`${path}.new`, path);
    const next = await startTestServer({ dataDir, flags });
    onTestFinished(() => next.dispose());
    expect(JSON.parse(await readFile(path, "utf8")).id).not.toBe(JSON.parse(text).id);
    const api = new ApiClient(next.url, key);
    await expect
      .poll(async () => (await api.ask<SandboxInfo>("GET", `/sandboxes/${sandbox.id}`)).body, { timeout: 60_000 })
      .toMatchObject({ state: "running", server: { url: next.url } });
    expect((await api.run(sandbox.id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
  },
);

test("a data directory that is renamed while its sandboxes run keeps them, and can kill one completely", async () => {
  const flags = await storeFlags();
  const first = await startTestServer({ flags });
  const { sandbox } = await new ApiClient(first.url, first.key).create(persistent);
  const { id } = sandbox;
  await new ApiClient(first.url, first.key).run(id, { shell: "echo kept >/dev/shm/note" });
  await first.stop();
  const record = await readFile(join(first.dataDir, "sandboxes", id, "record.json"), "utf8");
  const { pid } = (JSON.parse(record) as { container: { pid: number } }).container;
  const dataDir = await makeDataDir();
  await rename(first.dataDir, dataDir);
  const next = await startTestServer({ dataDir, flags });
  onTestFinished(() => next.dispose());
  const api = new ApiClient(next.url, first.key);
  expect((await api.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
  expect(existsSync(`/proc/${pid}`)).toBe(true);
  await api.ask("DELETE", `/sandboxes/${id}`);
  expect(existsSync(`/proc/${pid}`)).toBe(false);
});
