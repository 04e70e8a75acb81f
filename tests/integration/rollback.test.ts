// @module-tag gvisor
import { rename } from "node:fs/promises";
import { isSandboxError, type ApiEvent, type SandboxId } from "@atoll/protocol";
import type { Command, SandboxManager } from "@atoll/server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createIn, openTestManager, readAll, start, type TestManager } from "../support/test-manager.ts";

const patience = (): AbortSignal => AbortSignal.timeout(60_000);
const counting = "i=0; while read line; do i=$((i+1)); echo $line $i; done";

let host: TestManager;
let manager: SandboxManager;
beforeAll(async () => {
  host = await openTestManager();
  ({ manager } = host);
});
afterAll(() => host.dispose());

/** Reads the output until it has this number of bytes. */
async function until(command: Command, bytes: number): Promise<void> {
  for await (const piece of command.follow({ signal: patience() }))
    if (piece.type === "output" && piece.at + piece.data.byteLength >= bytes) return;
}

async function say(command: Command, text: string): Promise<void> {
  const { stdinBytes, stdoutBytes } = command.info();
  await command.writeStdin(Buffer.from(text), { offset: stdinBytes });
  await until(command, stdoutBytes + 4);
}

/** Returns the events about this sandbox since the cursor, up to the first one of this type. */
async function eventsSince(cursor: number, sandboxId: SandboxId, type: ApiEvent["type"]): Promise<ApiEvent[]> {
  const events: ApiEvent[] = [];
  for await (const event of manager.events.follow({ cursor, sandboxId, signal: patience() })) {
    events.push(event);
    if (event.type === type) break;
  }
  return events;
}

test("commands are those of the checkpoint: later ones are gone, and followers get an error", async () => {
  const { cursor } = manager.events;
  const id = await createIn(manager, { driver: "gvisor" });
  const first = await start(manager, id, { shell: counting, stdin: true });
  await say(first, "a\n");
  await manager.pauseResume.pause(id, { force: false });
  await manager.pauseResume.wake(id);
  await say(first, "b\n");
  const later = await start(manager, id, "echo later; exec sleep 1000");
  await until(later, 6);
  await manager.changes.update(id, { labels: { stage: "now" } });
  const following = readAll(first).catch((error: unknown) => error);
  const waiting = later.waitEnd(patience()).catch((error: unknown) => error);

  const result = await manager.rollbacks.rollback(id, { checkpoint: 1, force: false });
  expect(result).toMatchObject({ checkpoint: 1, left: 2, sandbox: { state: "running", labels: { stage: "now" } } });
  expect(isSandboxError(await following, "rolled_back")).toBe(true);
  expect(isSandboxError(await waiting, "rolled_back")).toBe(true);
  expect(manager.commands(id).map((command) => command.id)).toEqual([first.id]);
  expect(() => manager.command(id, later.id)).toThrow("Cannot find command");

  const again = manager.command(id, first.id);
  expect(again.info()).toMatchObject({ state: "running", stdoutBytes: 4, stdinBytes: 2, rollbacks: 1 });
  await say(again, "c\n");
  // The log has bytes at these offsets, but they are not the bytes that were read before.
  await expect(again.follow({ from: 8, rollbacks: 0 }).next()).rejects.toMatchObject({ code: "rolled_back" });
  await expect(first.follow().next()).rejects.toMatchObject({ code: "rolled_back" });

  const undone = await manager.rollbacks.rollback(id, { checkpoint: 2, force: false });
  expect(undone).toMatchObject({ checkpoint: 2, left: 3 });
  expect(manager.commands(id).map((command) => command.id)).toEqual([first.id, later.id]);
  const back = manager.command(id, first.id);
  await say(back, "d\n");
  await back.closeStdin();
  await back.waitEnd(patience());
  expect((await readAll(back)).text).toBe("a 1\nb 2\nd 3\n");
  expect(manager.command(id, later.id).info()).toMatchObject({ state: "running", stdoutBytes: 6, rollbacks: 2 });

  await expect(manager.rollbacks.removeCheckpoint(id, 2)).rejects.toMatchObject({ code: "in_use" });
  expect(await manager.rollbacks.removeCheckpoint(id, 3)).toBe(true);
  expect(await manager.rollbacks.removeCheckpoint(id, 3)).toBe(false);
  expect((await manager.pauseResume.checkpoints(id)).map(({ n }) => n)).toEqual([1, 2]);
  const events = await eventsSince(cursor, id, "checkpoint.removed");
  expect(events.filter(({ type }) => type !== "sandbox.state" && !type.startsWith("command."))).toMatchObject([
    { type: "sandbox.rolled_back", checkpoint: 1, left: 2 },
    { type: "sandbox.rolled_back", checkpoint: 2, left: 3 },
    { type: "checkpoint.removed", checkpoint: 3 },
  ]);
  // No event reports the end of a command that the rollback has removed.
  expect(events.filter(({ type }) => type === "command.lost")).toEqual([]);
});

test("a refused rollback changes nothing", async () => {
  const id = await createIn(manager, { driver: "gvisor" });
  await manager.pauseResume.pause(id, { force: false });
  const holding = await start(manager, id, "exec 3>gone; rm gone; echo held; exec sleep 1000");
  await until(holding, 5);
  await expect(manager.rollbacks.rollback(id, { checkpoint: 7, force: false })).rejects.toMatchObject({
    code: "not_found",
  });
  await expect(manager.rollbacks.rollback(id, { checkpoint: 1, force: false })).rejects.toMatchObject({
    code: "unsaveable",
  });
  const { owner = "" } = await manager.engine.checkpointFiles(id, 1);
  await rename(owner, `${owner}.away`);
  await expect(manager.rollbacks.rollback(id, { checkpoint: 1, force: true })).rejects.toMatchObject({
    code: "unrestorable",
    details: { part: "owner" },
  });
  await rename(`${owner}.away`, owner);
  expect(manager.get(id)).toMatchObject({ state: "running", runningCommands: 1 });
  expect(holding.info()).toMatchObject({ state: "running", stdoutBytes: 5 });
  expect(await manager.rollbacks.rollback(id, { checkpoint: 1, force: true })).toMatchObject({ left: 2 });
  expect(manager.commands(id)).toEqual([]);
  // A command that is started during the rollback waits until the sandbox runs.
  const [, command] = await Promise.all([
    manager.rollbacks.rollback(id, { checkpoint: 1, force: false }),
    start(manager, id, "echo after"),
  ]);
  expect((await readAll(command)).text).toBe("after\n");
});
