import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxInfo } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { makeDataDir } from "../support/test-root.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
/** The time covers the expiry of a lease on a machine that is busy with other tests. */
const longTimeout = { timeout: 180_000 };

async function directory(): Promise<string> {
  const path = await makeDataDir();
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/**
 * Starts servers with different settings on one data directory. The last server removes everything at the end.
 */
class Restarts {
  readonly dataDir: string;
  #key = "";

  constructor(dataDir: string) {
    this.dataDir = dataDir;
  }

  async with(flags: readonly string[]): Promise<{ api: ApiClient; server: TestServer }> {
    const server = await startTestServer({ dataDir: this.dataDir, flags });
    this.#key ||= server.key;
    return { api: new ApiClient(server.url, this.#key), server };
  }
}

const flagsFor = (path: string): string[] => ["--metadata-store", path, "--checkpoint-store", path];

/** Creates a sandbox with data in its memory, and stops the server. */
async function createAndStop(restarts: Restarts, store: string): Promise<string> {
  const { api, server } = await restarts.with(flagsFor(store));
  const { sandbox } = await api.create(persistent);
  await api.run(sandbox.id, { shell: "echo kept >/dev/shm/note" });
  await server.stop();
  return sandbox.id;
}

test(
  "a server with another store, an empty one or none refuses to start while it has persistent sandboxes",
  longTimeout,
  async () => {
    const [store, other] = [await directory(), await directory()];
    const restarts = new Restarts(await directory());
    const id = await createAndStop(restarts, store);

    for (const setting of ["metadataStore", "checkpointStore"]) {
      const flag = setting === "metadataStore" ? "--metadata-store" : "--checkpoint-store";
      await expect(restarts.with([...flagsFor(store), flag, "none"])).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining(`Cannot start: ${setting} is none`),
        details: { setting },
      });
    }
    const refusal = {
      code: "conflict",
      message: expect.stringContaining(id),
      details: {
        setting: "metadataStore",
        expected: expect.stringMatching(/^store-/),
        found: expect.stringMatching(/^store-/),
      },
    };
    await expect(restarts.with(flagsFor(other))).rejects.toMatchObject(refusal);
    // An unmounted disk looks like this: the directory exists and is empty.
    await rename(store, `${store}.away`);
    onTestFinished(() => rm(`${store}.away`, { recursive: true, force: true }));
    await expect(restarts.with(flagsFor(store))).rejects.toMatchObject(refusal);
    await rm(store, { recursive: true });
    await rename(`${store}.away`, store);

    const { api, server } = await restarts.with(flagsFor(store));
    onTestFinished(() => server.dispose());
    expect((await api.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
    const { body } = await api.ask<SandboxInfo>("GET", `/sandboxes/${id}`);
    expect(body).toMatchObject({ state: "running", server: { url: server.url } });
    expect(body.takenOver).toBeUndefined();
  },
);

test(
  "a persistent sandbox without metadata in the store does not run, reports that, and runs with its own store",
  longTimeout,
  async () => {
    const [store, other] = [await directory(), await directory()];
    const restarts = new Restarts(await directory());
    const id = await createAndStop(restarts, store);
    const forgetStore = async (): Promise<void> => {
      const path = join(restarts.dataDir, "server.json");
      const { metadataStore: _, ...rest } = JSON.parse(await readFile(path, "utf8")) as Record<string, unknown>;
      await writeFile(path, JSON.stringify(rest));
    };

    await forgetStore();
    const wrong = await restarts.with(flagsFor(other));
    for (const _ of ["at the first request", "at a later request"]) {
      const { body } = await wrong.api.ask("POST", `/sandboxes/${id}/commands`, { shell: "true" });
      expect(body.error).toMatchObject({ code: "unrestorable", details: { setting: "metadataStore" } });
      expect(body.error?.message).toContain(other);
    }
    expect((await wrong.api.ask<SandboxInfo>("GET", `/sandboxes/${id}`)).body).toMatchObject({ id });
    await wrong.server.stop();

    await forgetStore();
    const right = await restarts.with(flagsFor(store));
    expect((await right.api.run(id, { shell: "cat /dev/shm/note" })).stdout).toBe("kept\n");
    await right.server.stop();

    await forgetStore();
    const last = await restarts.with(flagsFor(other));
    onTestFinished(() => last.server.dispose());
    expect((await last.api.ask("DELETE", `/sandboxes/${id}`)).body).toEqual({ killed: true });
    expect((await last.api.ask("GET", `/sandboxes/${id}`)).status).toBe(404);
  },
);
