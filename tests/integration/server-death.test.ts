import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { CrashingServer } from "../support/crashing-server.ts";
import { describeDrivers } from "../support/drivers.ts";
import { finish, openTestEngine, runIn } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const lines = 200_000;
/** All lines differ, so that a lost or doubled piece is found. */
const command = `seq -f 'line %09.0f of the output' 1 ${lines}; exit 37`;
const expected = createHash("sha256");
for (let line = 1; line <= lines; line += 1) expected.update(`line ${String(line).padStart(9, "0")} of the output\n`);
const expectedHash = expected.digest("hex");
const totalBytes = lines * "line 000000001 of the output\n".length;

describeDrivers("a server killed with SIGKILL, %s", (driver) => {
  test.for([0.01, 0.35, 0.8])(
    "no byte is lost or doubled and the exit code is right when it dies at %d of the output",
    async (share) => {
      const dataDir = await makeDataDir();
      const logFile = join(dataDir, "output.log");
      const server = new CrashingServer(dataDir, "follow", driver, logFile, command);
      const { sandboxId, streamId } = await server.until((fact) => fact.streamId !== undefined);
      await server.until((fact) => (fact.bytes ?? 0) >= totalBytes * share);
      await server.killHard();

      const host = await openTestEngine({ dataDir });
      try {
        expect(host.engine.repairs.map(({ done }) => done)).toEqual(["adopted"]);
        const sandbox = host.engine.get(SandboxId.parse(sandboxId));
        const kept = await readFile(logFile);
        const process = sandbox.attach(streamId ?? 0, { stdoutBytes: kept.byteLength, stderrBytes: 0 });
        const rest = await finish(process);
        expect(kept.byteLength + rest.stdout.byteLength).toBe(totalBytes);
        expect(createHash("sha256").update(kept).update(rest.stdout).digest("hex")).toBe(expectedHash);
        expect(rest.exitCode).toBe(37);
      } finally {
        await host.dispose();
      }
    },
  );

  test("a process that ended while no server ran still has its output and its exit code", async () => {
    const dataDir = await makeDataDir();
    const logFile = join(dataDir, "output.log");
    const server = new CrashingServer(dataDir, "follow", driver, logFile, "read go; echo late; exit 9");
    const { sandboxId, streamId } = await server.until((fact) => fact.streamId !== undefined);
    await server.killHard();
    const first = await openTestEngine({ dataDir });
    const attached = first.engine
      .get(SandboxId.parse(sandboxId))
      .attach(streamId ?? 0, { stdoutBytes: 0, stderrBytes: 0 }, { keep: true });
    await attached.writeStdin("go\n");
    // The guest has the exit status and no server has acknowledged it. This server is killed as well.
    expect((await attached.wait()).exitCode).toBe(9);
    await first.engine.close();

    const second = await openTestEngine({ dataDir });
    try {
      const sandbox = second.engine.get(SandboxId.parse(sandboxId));
      expect(sandbox.inherited).toMatchObject([{ id: streamId, state: "exited" }]);
      const process = sandbox.attach(streamId ?? 0, { stdoutBytes: 0, stderrBytes: 0 });
      expect(await finish(process)).toMatchObject({ exitCode: 9, output: "late\n" });
      expect((await runIn(sandbox, "echo alive")).output).toBe("alive\n");
    } finally {
      await second.dispose();
    }
  });

  test.for(["creating", "killing"])("one that dies while a sandbox is %s leaves nothing behind", async (state) => {
    const dataDir = await makeDataDir();
    const server = new CrashingServer(dataDir, "create-and-kill", driver);
    const { sandboxId } = await server.until((fact) => fact.state === state);
    await server.killHard();
    const host = await openTestEngine({ dataDir });
    try {
      expect(host.engine.list()).toEqual([]);
      expect(host.engine.repairs).toContainEqual({
        what: `sandbox ${sandboxId}`,
        done: "removed",
        because: expect.stringContaining("the server stopped while") as string,
      });
      expect(await runIn(await host.engine.create({ driver }), "echo works")).toMatchObject({ output: "works\n" });
    } finally {
      await host.dispose();
    }
  });
});
