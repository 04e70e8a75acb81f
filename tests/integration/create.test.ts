import { readdir, readFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
beforeAll(async () => {
  host = await openTestEngine();
});
afterAll(() => host.dispose());

const store = async ({ id, ownerDir }: { id: string; ownerDir: string }): Promise<void> => {
  await mkdir(ownerDir, { recursive: true });
  await writeFile(join(ownerDir, "mine"), id);
};

describe("the caller's callback while a sandbox starts", () => {
  test("has finished when create resolves", async () => {
    await using sandbox = await host.engine.create({ driver: "local" }, { alongside: store });
    expect(await readFile(join(sandbox.ownerDir, "mine"), "utf8")).toBe(sandbox.id);
  });

  test("starts when the intent is stored, without waiting for the start", async () => {
    let state: string | undefined;
    await using sandbox = await host.engine.create(
      { driver: "local" },
      {
        alongside: async ({ id }) => {
          state = host.engine.list().find((record) => record.id === id)?.state;
        },
      },
    );
    expect(sandbox.state).toBe("running");
    expect(state).toBe("creating");
  });

  test("fails the create if it fails, and leaves nothing", async () => {
    const created = host.engine.create(
      { driver: "local" },
      {
        alongside: async (sandbox) => {
          await store(sandbox);
          throw new Error("no room for it");
        },
      },
    );
    await expect(created).rejects.toThrow("no room for it");
    expect(host.engine.list()).toEqual([]);
    expect(await readdir(join(host.dataDir, "sandboxes"))).toEqual([]);
  });

  test("is awaited before a failed start removes the sandbox, however long it takes", async () => {
    const stop = new AbortController();
    const created = host.engine.create(
      { driver: "local" },
      {
        signal: stop.signal,
        alongside: async (sandbox) => {
          stop.abort(new Error("changed my mind"));
          // The container is gone, and the sandbox exists until this callback has finished.
          const runs = join(host.dataDir, "sandboxes", sandbox.id, "run");
          await expect.poll(() => readdir(runs).catch(() => [])).toEqual([]);
          await store(sandbox);
        },
      },
    );
    await expect(created).rejects.toThrow("changed my mind");
    expect(await readdir(join(host.dataDir, "sandboxes"))).toEqual([]);
  });
});

test("egress works when create resolves", async () => {
  await using sandbox = await host.engine.create({ driver: "local" }, { proxyPort: 3128 });
  expect(await runIn(sandbox, "exec 3<>/dev/tcp/127.0.0.1/3128")).toMatchObject({ exitCode: 0 });
});
