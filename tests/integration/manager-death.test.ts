import { createHash } from "node:crypto";
import { CommandId, CreateSandbox, RunCommand, SandboxId } from "@atoll/protocol";
import type { Command } from "@atoll/server";
import { describe, expect, test } from "vitest";
import { CrashingManager, type Fact } from "../support/crashing-server.ts";
import { describeDrivers } from "../support/drivers.ts";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";
import { makeDataDir } from "../support/test-root.ts";

const lines = 100_000;
/** All lines differ, so that a lost or doubled piece is found. */
const shell = `seq -f 'line %09.0f of the output' 1 ${lines}; echo the end >&2; exit 37`;
const expected = Array.from({ length: lines }, (_, i) => `line ${String(i + 1).padStart(9, "0")} of the output\n`).join(
  "",
);
const whole = `${expected}the end\n`;

function commandOf(host: TestManager, { sandboxId, commandId }: Fact): Command {
  return host.manager.command(SandboxId.parse(sandboxId), CommandId.parse(commandId));
}

describeDrivers("a server killed with SIGKILL, %s", (driver) => {
  test.for(driver === "local" ? [0.001, 0.5, 1] : [0.4])(
    "in the middle of output, at %d of it, loses and doubles nothing",
    async (share) => {
      const dataDir = await makeDataDir();
      const server = new CrashingManager(dataDir, "follow", driver, JSON.stringify({ shell }));
      const started = await server.until((fact) => fact.commandId !== undefined);
      await server.until((fact) => (fact.bytes ?? 0) >= whole.length * share);
      await server.killHard();

      const host = await openTestManager({ dataDir });
      try {
        const command = commandOf(host, started);
        const { text } = await readAll(command);
        expect(createHash("sha256").update(text).digest("hex")).toBe(createHash("sha256").update(whole).digest("hex"));
        expect(await command.waitEnd()).toMatchObject({ state: "exited", exitCode: 37, stderrBytes: 8 });
        expect((await readAll(command, 1_234_567)).text).toBe(whole.slice(1_234_567));
      } finally {
        await host.dispose();
      }
    },
  );

  test("in the middle of input, loses and doubles nothing that was accepted", async () => {
    const total = 3_000_000;
    const dataDir = await makeDataDir();
    const server = new CrashingManager(dataDir, "feed", driver, String(total));
    const started = await server.until((fact) => fact.commandId !== undefined);
    const { stdinBytes = 0 } = await server.until((fact) => (fact.stdinBytes ?? 0) >= 1_000_000);
    await server.killHard();

    const host = await openTestManager({ dataDir });
    try {
      const command = commandOf(host, started);
      expect(command.info().stdinBytes).toBeGreaterThanOrEqual(stdinBytes);
      const all = Buffer.from(Array.from({ length: total }, (_, index) => index % 251));
      // A client continues after the bytes that were acknowledged to it, which may be fewer than arrived.
      expect(await command.writeStdin(all.subarray(stdinBytes), { offset: stdinBytes })).toBe(total);
      await command.closeStdin({ offset: total });
      expect((await command.waitEnd()).exitCode).toBe(0);
      expect((await readAll(command)).text).toContain(createHash("sha256").update(all).digest("hex"));
    } finally {
      await host.dispose();
    }
  });
});

describe("after a crash", () => {
  test("a command that ended while no server ran has its output and exit code", async () => {
    const dataDir = await makeDataDir();
    const request = { shell: "echo ready; read line; echo got $line; exit 9", stdin: true };
    const server = new CrashingManager(dataDir, "follow", "local", JSON.stringify(request));
    const started = await server.until((fact) => fact.commandId !== undefined);
    await server.until((fact) => fact.bytes === 6);
    await server.killHard();
    const first = await openTestManager({ dataDir });
    await commandOf(first, started).writeStdin(Buffer.from("it\n"));
    // This time the server shuts down in order, whatever the command does at the time.
    await first.manager.shutdown();
    const second = await openTestManager({ dataDir });
    try {
      const command = commandOf(second, started);
      expect(await command.waitEnd()).toMatchObject({ state: "exited", exitCode: 9, stdinBytes: 3 });
      expect((await readAll(command)).text).toBe("ready\ngot it\n");
    } finally {
      await second.dispose();
    }
  });

  test.for([0, 2, 8, 32])("%d turns after a command was stored, a retry runs it exactly once", async (turns) => {
    const host = await openTestManager();
    const { dataDir } = host;
    const request = CreateSandbox.parse({ driver: "local" });
    const { sandbox } = await host.manager.create(request, { keyId: "test" });
    await host.manager.shutdown();
    await new CrashingManager(dataDir, "die-at-start", sandbox.id, String(turns)).gone();
    const next = await openTestManager({ dataDir });
    try {
      const retry = RunCommand.parse({ shell: "echo ran >> runs" });
      const command = await next.manager.run(sandbox.id, retry, { idempotencyKey: `turns ${turns}` });
      expect(await command.waitEnd()).toMatchObject({ state: "exited", exitCode: 0 });
      expect(next.manager.commands(sandbox.id)).toHaveLength(1);
      const count = await start(next.manager, sandbox.id, "cat runs");
      expect((await readAll(count)).text).toBe("ran\n");
    } finally {
      await next.dispose();
    }
  });

  test("a repeated create returns the same sandbox and token, and event numbers continue", async () => {
    const dataDir = await makeDataDir();
    const server = new CrashingManager(dataDir, "create", "local");
    const { created } = await server.until((fact) => fact.created !== undefined);
    await server.killHard();
    const host = await openTestManager({ dataDir });
    try {
      const request = CreateSandbox.parse({ driver: "local" });
      const by = { keyId: "test", idempotencyKey: "the one" };
      const again = await host.manager.create(request, by);
      expect(again.sandbox.id).toBe(created);
      expect(host.manager.access.verifyToken(again.sandbox.id, again.token)).toBe(true);
      expect(host.manager.access.verifyToken(again.sandbox.id, `${again.token}x`)).toBe(false);
      const other = CreateSandbox.parse({ driver: "local", labels: { a: "b" } });
      await expect(host.manager.create(other, by)).rejects.toMatchObject({ code: "invalid_argument" });
      expect(host.manager.events.cursor).toBeGreaterThanOrEqual(2);
    } finally {
      await host.dispose();
    }
  });

  test("a command whose sandbox died while no server ran is lost, gives the reason, and keeps its output", async () => {
    const dataDir = await makeDataDir();
    const request = { shell: "echo before; sleep 1000" };
    const server = new CrashingManager(dataDir, "follow", "local", JSON.stringify(request));
    const started = await server.until((fact) => fact.commandId !== undefined);
    await server.until((fact) => fact.bytes === 7);
    await server.killHard();
    for (const pid of (await hostLeftovers(dataDir)).processes) process.kill(pid, "SIGKILL");
    await expect.poll(async () => (await hostLeftovers(dataDir)).processes).toEqual([]);
    const host = await openTestManager({ dataDir });
    try {
      const command = commandOf(host, started);
      expect(command.info()).toMatchObject({
        state: "lost",
        exitCode: null,
        lostBecause: expect.stringContaining("its sandbox has ended") as string,
      });
      expect((await readAll(command)).text).toBe("before\n");
    } finally {
      await host.dispose();
    }
  });
});
