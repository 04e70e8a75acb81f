/**
 * A server to be killed, without its network side: does one thing and says on stdout how far it is, a JSON line each. Run as
 * `crash-manager.ts <dataDir> <what> [argument…]`.
 */
import { readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { CreateSandbox, DriverName, RunCommand, SandboxId } from "@atoll/protocol";
import { SandboxManager } from "@atoll/server";
import { guestBinaryPath } from "../../../tools/setup/guest.mjs";

const [dataDir = "", what = "", ...words] = process.argv.slice(2);

function say(fact: Record<string, unknown>): void {
  writeSync(1, `${JSON.stringify(fact)}\n`);
}

async function create(manager: SandboxManager, driver: string | undefined): Promise<SandboxId> {
  const request = CreateSandbox.parse({ driver: DriverName.parse(driver) });
  const { sandbox } = await manager.create(request, { keyId: "test", idempotencyKey: "the one" });
  return sandbox.id;
}

/** Runs a command and says how much of its output is stored. */
async function follow(manager: SandboxManager, driver: string | undefined, request: string): Promise<void> {
  const id = await create(manager, driver);
  const command = await manager.run(id, RunCommand.parse(JSON.parse(request)), { idempotencyKey: "the one" });
  say({ sandboxId: id, commandId: command.id });
  for await (const piece of command.follow())
    if (piece.type === "output") say({ bytes: piece.at + piece.data.byteLength });
  say({ exit: command.info().exitCode });
}

/** Feeds a command and says how much of it was accepted. */
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

/** Dies by itself, a few turns of the event loop after the command's record was stored. */
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

/** Where to stop for ever, once this is said. */
let lastStep = "";
const atStep = async (step: string): Promise<void> => {
  if (step !== lastStep) return;
  say({ step });
  await new Promise(() => undefined);
};

/** Takes a sandbox back to before its command counted to two, and before another one was started. */
async function rollBack(manager: SandboxManager, step: string): Promise<void> {
  const id = await create(manager, "gvisor");
  const shell = "i=0; while read line; do i=$((i+1)); echo $line $i; done";
  const command = await manager.run(id, RunCommand.parse({ shell, stdin: true }));
  const until = async (bytes: number): Promise<void> => {
    for await (const piece of command.follow())
      if (piece.type === "output" && piece.at + piece.data.byteLength === bytes) return;
  };
  await command.writeStdin(Buffer.from("a\n"), { offset: 0 });
  await until(4);
  await manager.sleep.pause(id, { force: false });
  await manager.sleep.wake(id);
  await command.writeStdin(Buffer.from("b\n"), { offset: 2 });
  await until(8);
  await manager.run(id, RunCommand.parse({ shell: "exec sleep 1000" }));
  say({ sandboxId: id, commandId: command.id });
  lastStep = step;
  await manager.rollbacks.rollback(id, { checkpoint: 1, force: false });
}

const manager = await SandboxManager.open({ dataDir, guestPath: guestBinaryPath(), engineOptions: { atStep } });
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
  case "die-at-start":
    await dieAtStart(manager, words[0], Number(words[1]));
    break;
  default:
    throw new Error(`Nothing is called ${what}`);
}
say({ done: true });
// Stays, as a server does, until it is killed.
setInterval(() => undefined, 1_000_000);
