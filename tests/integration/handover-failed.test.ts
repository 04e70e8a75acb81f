// @module-tag gvisor
import type { SandboxInfo, SandboxResumed } from "@atoll/protocol";
import { expect, test } from "vitest";
import type { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { createSandboxWithNote } from "../support/sandbox-with-note.ts";
import { ServerPair } from "../support/server-pair.ts";
import { sharedDirectory } from "../support/shared-store.ts";

const soon = { timeout: 60_000, interval: 50 };
const longTimeout = { timeout: 180_000 };
const MiB = 1024 * 1024;
/** A command that needs so much memory that the kernel kills the runtime. */
const hog = "head -c 400M /dev/zero | tail -c 300M | wc -c";

const servers = new ServerPair(sharedDirectory);

test(
  "a failed sandbox restarts from its files on its server, and can then move to any other",
  longTimeout,
  async () => {
    const [atA, atB] = servers.clients;
    const { sandbox } = await atA.create({ driver: "gvisor", persistent: true, limits: { memoryBytes: 128 * MiB } });
    const at = `/sandboxes/${sandbox.id}`;
    await atA.fetch("PUT", `${at}/files?path=/home/user/kept`, { body: "precious" });
    await atA.ask("POST", `${at}/commands`, { shell: hog });
    const stateAt = async (api: ApiClient): Promise<string> => (await api.ask<SandboxInfo>("GET", at)).body.state;
    await expect.poll(() => stateAt(atB), soon).toBe("failed");
    const refused = await atA.ask("POST", `${at}/resume`, {});
    expect(refused.body.error).toMatchObject({ code: "invalid_state", details: { state: "failed" } });
    const resumed = await atA.ask<SandboxResumed>("POST", `${at}/resume`, { memory: false });
    expect(resumed.body).toMatchObject({ sandbox: { state: "running" } });
    await expect.poll(() => stateAt(atB), soon).toBe("running");
    expect((await atB.run(sandbox.id, { shell: "cat kept" })).stdout).toBe("precious");
    await atB.ask("DELETE", at);
  },
);

test.for([
  { name: "was never stored", isStored: false },
  { name: "has an older checkpoint in the store", isStored: true },
])(
  "a failed sandbox that $name stays on the server that has its files, and other servers say so",
  longTimeout,
  async ({ isStored }) => {
    const [atA, atB] = servers.clients;
    const limits = { memoryBytes: 128 * MiB };
    const id = isStored
      ? await createSandboxWithNote(atA, { limits })
      : (await atA.create({ driver: "gvisor", persistent: true, limits })).sandbox.id;
    const at = `/sandboxes/${id}`;
    await atA.fetch("PUT", `${at}/files?path=/home/user/kept`, { body: "precious" });
    await atA.ask("POST", `${at}/commands`, { shell: hog });
    const failed = { state: "failed", reason: { kind: "memory" }, server: { url: servers.a.url } };
    const infoAt = async (api: ApiClient): Promise<SandboxInfo> => (await api.ask<SandboxInfo>("GET", at)).body;
    await expect.poll(() => infoAt(atA), soon).toMatchObject(failed);
    await expect.poll(() => infoAt(atB), soon).toMatchObject(failed);

    for (const ask of [1, 2]) {
      const { status, body } = await atB.ask("POST", `${at}/commands`, { shell: "cat kept" });
      expect({ ask, status }).toEqual({ ask, status: 409 });
      expect(body.error).toMatchObject({ code: "invalid_state", details: { ...failed, sandboxId: id } });
      expect(body.error?.message).toContain("it has failed on server");
    }
    // The server acquires the sandbox again by itself.
    await expect.poll(() => infoAt(atA), soon).toMatchObject(failed);
    const name = `rescued-${isStored}`;
    expect((await atA.ask("POST", `${at}/snapshots`, { name })).status).toBe(201);
    const { sandbox: copy } = await atA.create({ driver: "gvisor", snapshot: name });
    expect((await atA.run(copy.id, { shell: "cat kept" })).stdout).toBe("precious");
    await atA.ask("DELETE", `/sandboxes/${copy.id}`);

    expect((await atB.ask("DELETE", at)).body).toEqual({ killed: true });
    await eventOf(servers.a, "sandbox.copy_dropped", id);
    expect((await atA.ask("GET", at)).status).toBe(404);
  },
);
