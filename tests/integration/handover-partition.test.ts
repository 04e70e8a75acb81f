// @module-tag gvisor
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { CommandInfo, SandboxInfo } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { eventOf } from "../support/api-events.ts";
import { openBreakableLink } from "../support/breakable-link.ts";
import { sharedBucket } from "../support/shared-store.ts";
import { startTestServer } from "../support/test-server.ts";

const persistent = { driver: "gvisor", persistent: true } as const;
const soon = { interval: 200 };
const leaseTtl = ["--lease-ttl-ms", "15000"];
/** A script that writes the time in milliseconds to a file about twenty times a second. */
const ticking = "while :; do date +%s%3N >>ticks; sleep 0.05; done";

/** Reads the last time from the host's files, because the server that ran the sandbox does not answer. */
async function lastTick(dataDir: string, id: string): Promise<number> {
  const layers = join(dataDir, "sandboxes", id, "layers");
  const names = await readdir(layers, { recursive: true });
  const ticks = names.find((name) => name.endsWith("/ticks"));
  const text = await readFile(join(layers, ticks ?? "ticks"), "utf8");
  return Number(text.trim().split("\n").at(-1));
}

test(
  "a server cut off from the store stops its sandboxes before another runs them, and then keeps those not acquired",
  { timeout: 300_000 },
  async () => {
    const store = await sharedBucket();
    onTestFinished(() => store[Symbol.asyncDispose]());
    const link = await openBreakableLink(store.url);
    onTestFinished(() => link[Symbol.asyncDispose]());
    const [a, b] = await Promise.all([
      startTestServer({ flags: [...store.flags(link.url), ...leaseTtl] }),
      startTestServer({ flags: [...store.flags(), ...leaseTtl] }),
    ]);
    onTestFinished(() => b.dispose());
    onTestFinished(() => a.dispose());
    const [atA, atB] = [new ApiClient(a.url, a.key), new ApiClient(b.url, b.key)];
    const [taken, left] = await Promise.all(
      ["taken", "left"].map(async () => {
        const { sandbox } = await atA.create(persistent);
        await atA.ask("POST", `/sandboxes/${sandbox.id}/pause`, {});
        const command = await atA.start(sandbox.id, { shell: ticking });
        return { id: sandbox.id, path: `/sandboxes/${sandbox.id}/commands/${command.id}` };
      }),
    );
    if (taken === undefined || left === undefined) throw new Error("The test needs two sandboxes");

    link.cut();
    const there = await atB.run(taken.id, { shell: "date +%s%3N; test -e ticks || echo as saved" });
    const [startedMs, rest] = there.stdout.split("\n");
    expect(rest).toBe("as saved");
    // After this command, anything that the first server's container might still have written is in the file.
    await atB.run(taken.id, { shell: "true" });
    expect(await lastTick(a.dataDir, taken.id)).toBeLessThan(Number(startedMs));
    expect((await atB.ask<SandboxInfo>("GET", `/sandboxes/${taken.id}`)).body.takenOver).toMatchObject({
      fromServer: { url: a.url },
      checkpoint: 1,
    });
    const stoodStill = await eventOf(a, "sandbox.lease_lost", left.id);
    expect(stoodStill.because).toBe("expired");
    const before = await lastTick(a.dataDir, left.id);

    link.mend();
    await eventOf(a, "sandbox.copy_dropped", taken.id);
    await expect.poll(() => lastTick(a.dataDir, left.id), soon).toBeGreaterThan(before);
    const command = await atA.ask<CommandInfo>("GET", left.path);
    expect(command.body.state).toBe("running");
    const { body } = await atA.ask<SandboxInfo>("GET", `/sandboxes/${left.id}`);
    expect(body).toMatchObject({ state: "running", server: { url: a.url } });
    expect(body.takenOver).toBeUndefined();
    expect(await atA.run(taken.id, { shell: "test -e ticks || echo as saved" })).toMatchObject({
      stdout: "as saved\n",
    });
  },
);
