/**
 * A server without its network side that a test kills. It does one thing and prints its progress on stdout, one line of
 * JSON each. Run as `crash-manager.ts <dataDir> <what> [argument…]`.
 */
import { readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { CreateSandbox, DriverName, RunCommand, SandboxId } from "@atoll/protocol";
import { SandboxManager, type Command } from "@atoll/server";
import { guestBinaryPath } from "../../../tools/setup/guest.mjs";
import type { CrashPlan } from "../crashing-server.ts";
import { openManagerStore } from "../manager-store.ts";

const [dataDir = "", what = "", ...words] = process.argv.slice(2);

function say(fact: Record<string, unknown>): void {
  writeSync(1, `${JSON.stringify(fact)}\n`);
}

async function create(
  manager: SandboxManager,
  driver: string | undefined,
  { persistent = false, idempotencyKey = "the one" } = {},
): Promise<SandboxId> {
  const request = CreateSandbox.parse({ driver: DriverName.parse(driver), persistent });
  const { sandbox } = await manager.create(request, { keyId: "test", idempotencyKey });
  return sandbox.id;
}

/** Runs a command and prints how much of its output is stored. */
async function follow(manager: SandboxManager, driver: string | undefined, request: string): Promise<void> {
  const id = await create(manager, driver);
  const command = await manager.run(id, RunCommand.parse(JSON.parse(request)), { idempotencyKey: "the one" });
  say({ sandboxId: id, commandId: command.id });
  for await (const piece of command.follow())
    if (piece.type === "output") say({ bytes: piece.at + piece.data.byteLength });
  say({ exit: command.info().exitCode });
}

/** Writes to a command's stdin and prints how many bytes were accepted. */
async function feed(manager: SandboxManager, driver: string | undefined, total: number): Promise<void> {
  const id = await create(manager, driver);
  const request = RunCommand.parse({ argv: ["sha256sum"], stdin: true });
  const command = await manager.run(id, request);
  say({ sandboxId: id, commandId: command.id });
  const piece = Buffer.alloc(10_000);
  for (let offset = 0; offset < total; offset += piece.byteLength) {
    for (let index = 0; index < piece.byteLength; index += 1) piece[index] = (offset + index) % 251;
    say({ stdinBytes: await command.writeStdin(piece, { offset }) });
  }
}

/** Kills this process a few turns of the event loop after the command's record was stored. */
async function dieAtStart(manager: SandboxManager, sandboxId: string | undefined, turns: number): Promise<void> {
  const id = SandboxId.parse(sandboxId);
  const directory = join(dataDir, "sandboxes", id, "owner", "commands");
  const count = (): number => {
    try {
      return readdirSync(directory).length;
    } catch {
      return 0;
    }
  };
  const before = count();
  const request = RunCommand.parse({ shell: "echo ran >> runs" });
  void manager.run(id, request, { idempotencyKey: `turns ${turns}` });
  const wait = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  while (count() === before) await wait();
  for (let turn = 0; turn < turns; turn += 1) await wait();
  process.kill(process.pid, "SIGKILL");
}

/** The step at which each sandbox stops for ever, after the step was printed. */
const lastSteps = new Map<string, string>();
const atStep = async (step: string, sandboxId: string): Promise<void> => {
  if (step !== lastSteps.get(sandboxId)) return;
  say({ step, sandboxId });
  await new Promise(() => undefined);
};

/**
 * Starts a command that counts the lines that it reads. When this returns, the sandbox has a checkpoint in which the
 * command had counted to one, and the command has counted to two.
 */
async function countTwice(manager: SandboxManager, id: SandboxId): Promise<Command> {
  const shell = "i=0; while read line; do i=$((i+1)); echo $i >>count; echo $line $i; done";
  const command = await manager.run(id, RunCommand.parse({ shell, stdin: true }));
  const until = async (bytes: number): Promise<void> => {
    for await (const piece of command.follow())
      if (piece.type === "output" && piece.at + piece.data.byteLength === bytes) return;
  };
  await command.writeStdin(Buffer.from("a\n"), { offset: 0 });
  await until(4);
  await manager.pauseResume.pause(id, { force: false });
  await manager.access.acquire(id, new AbortController().signal);
  await manager.pauseResume.wake(id);
  await command.writeStdin(Buffer.from("b\n"), { offset: 2 });
  await until(8);
  return command;
}

/** Rolls a sandbox back to a time before its command counted to two and before another command was started. */
async function rollBack(manager: SandboxManager, step: string): Promise<void> {
  const id = await create(manager, "gvisor");
  const command = await countTwice(manager, id);
  await manager.run(id, RunCommand.parse({ shell: "exec sleep 1000" }));
  say({ sandboxId: id, commandId: command.id });
  lastSteps.set(id, step);
  await manager.rollbacks.rollback(id, { checkpoint: 1, force: false });
}

/** Appends to a file without starting processes: a shell would start two for every tick, in each sandbox. */
const ticker = `
import time
while True:
    with open("ticks", "a") as ticks: ticks.write("tick\\n")
    print("tick")
    time.sleep(0.02)
`;

/** Does the same with persistent sandboxes. Each is rolled back or paused up to a different step. */
async function movePersistent(manager: SandboxManager, plan: CrashPlan): Promise<void> {
  const moves = Object.entries(plan).map(async ([name, { move, step }]) => {
    const id = await create(manager, "gvisor", { persistent: true, idempotencyKey: name });
    const { id: commandId } = await countTwice(manager, id);
    // This command counts without input, so that a test can see whether the sandbox runs.
    const ticking = await manager.run(id, RunCommand.parse({ argv: ["python3", "-uc", ticker] }));
    for await (const piece of ticking.follow()) if (piece.type === "output") break;
    say({ sandboxId: id, commandId, name });
    lastSteps.set(id, step);
    if (move === "pause") await manager.pauseResume.pause(id, { force: false });
    else await manager.rollbacks.rollback(id, { checkpoint: 1, force: false });
  });
  await Promise.all(moves);
}

const [storeDir = "", ttlMs = ""] = words;
const store =
  what === "move-persistent"
    ? await openManagerStore(storeDir, { name: "crashing", dataDir, ttlMs: Number(ttlMs) })
    : undefined;
const manager = await SandboxManager.open({
  dataDir,
  guestPath: guestBinaryPath(),
  engineOptions: { atStep },
  ...(store === undefined ? {} : { persistence: store.persistence }),
});
say({ cursor: manager.events.cursor });
switch (what) {
  case "follow":
    await follow(manager, words[0], words[1] ?? "");
    break;
  case "feed":
    await feed(manager, words[0], Number(words[1]));
    break;
  case "create":
    say({ created: await create(manager, words[0]) });
    break;
  case "roll-back":
    await rollBack(manager, words[0] ?? "");
    break;
  case "move-persistent":
    await movePersistent(manager, JSON.parse(words[2] ?? "") as CrashPlan);
    break;
  case "die-at-start":
    await dieAtStart(manager, words[0], Number(words[1]));
    break;
  default:
    throw new Error(`Unknown action ${what}`);
}
say({ done: true });
// The process stays, as a server does, until it is killed.
setInterval(() => undefined, 1_000_000);
