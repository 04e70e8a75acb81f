// @module-tag gvisor
import { CommandId, SandboxId } from "@atoll/protocol";
import { expect, test } from "vitest";
import { DoomedManager } from "../support/doomed-server.ts";
import { openTestManager } from "../support/test-manager.ts";
import { makeDataDir } from "../support/test-root.ts";

const before = { stdoutBytes: 8, commands: 2, next: "a 1\nb 2\nz 3\n" };
const after = { stdoutBytes: 4, commands: 1, next: "a 1\nz 2\n" };

/** Each step at which a server can die, and what the next one finds. */
const steps: [step: string, state: "running" | "paused", found: typeof before][] = [
  ["pause: saved", "paused", before],
  ["rollback: prepared", "paused", before],
  ["resume: intent", "paused", after],
  ["resume: running", "running", after],
  ["rollback: switched", "running", after],
];

test.for(steps)("a server that dies at %s leaves all of before or all of after", async ([step, state, found]) => {
  const dataDir = await makeDataDir();
  const server = new DoomedManager(dataDir, "roll-back", step);
  const { sandboxId, commandId } = await server.until((fact) => fact.commandId !== undefined);
  await server.until((fact) => fact.step === step);
  await server.killHard();

  const host = await openTestManager({ dataDir });
  try {
    const { manager } = host;
    const id = SandboxId.parse(sandboxId);
    expect(manager.get(id).state).toBe(state);
    expect(manager.commands(id)).toHaveLength(found.commands);
    const command = manager.command(id, CommandId.parse(commandId));
    expect(command.info()).toMatchObject({ state: "running", stdoutBytes: found.stdoutBytes });
    await manager.sleep.wake(id);
    await command.writeStdin(Buffer.from("z\n"), { offset: found.stdoutBytes / 2 });
    await command.closeStdin();
    expect(await command.waitEnd(AbortSignal.timeout(60_000))).toMatchObject({ exitCode: 0 });
    let output = "";
    for await (const piece of command.follow()) if (piece.type === "output") output += piece.data.toString();
    expect(output).toBe(found.next);
  } finally {
    await host.dispose();
  }
});
