import { Atoll, isSandboxError, Sandbox } from "@atoll/sdk";
import { expect, test } from "vitest";
import type { ScenarioServer } from "./scenario.ts";

/** Runs the same tests over the mock and over a real server that can pause. */
export function rollbackScenario(name: string, start: () => Promise<ScenarioServer>): void {
  test(`SDK over ${name}: a rollback restores files and commands, and followers of commands get an error`, async () => {
    const server = await start();
    const client = new Atoll(server.connection);
    try {
      const sandbox = await Sandbox.create({ client, ...server.create });
      await sandbox.files.write("/home/user/note", "first");
      const then = await sandbox.commands.run("cat", { stdin: true, background: true });
      const { checkpoint } = await sandbox.pause();
      await sandbox.resume();
      await sandbox.files.write("/home/user/note", "second");
      const later = await sandbox.commands.run("sleep 60", { background: true });
      const waiting = later.wait().catch((error: unknown) => error);

      const { left } = await sandbox.rollback(checkpoint);
      expect([checkpoint, left]).toEqual([1, 2]);
      expect(isSandboxError(await waiting, "rolled_back")).toBe(true);
      expect(await sandbox.files.read("/home/user/note")).toBe("first");
      expect((await sandbox.commands.list()).map(({ id, rollbacks }) => [id, rollbacks])).toEqual([[then.id, 1]]);
      const again = await sandbox.commands.connect(then.id);
      await again.sendStdin("on\n");
      await again.closeStdin();
      expect((await again.wait()).stdout).toBe("on\n");

      await expect(sandbox.rollback(9)).rejects.toMatchObject({ code: "not_found" });
      await expect(sandbox.deleteCheckpoint(1)).rejects.toMatchObject({ code: "in_use" });
      expect([await sandbox.deleteCheckpoint(2), await sandbox.deleteCheckpoint(2)]).toEqual([true, false]);
      expect((await sandbox.checkpoints()).map(({ n }) => n)).toEqual([1]);
      await sandbox.kill();
    } finally {
      client.close();
      await server.stop();
    }
  });
}
