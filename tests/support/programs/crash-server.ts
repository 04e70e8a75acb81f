/**
 * A server that a test kills: it opens an engine, does one thing and prints its progress on stdout, one line of JSON
 * each. Run as `crash-server.ts <dataDir> <what> [argument…]`.
 */
import { closeSync, openSync, writeSync } from "node:fs";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Engine, uptimeMs } from "@atoll/engine";
import { pollUntil } from "@atoll/host";
import type { DriverName, SandboxId } from "@atoll/protocol";
import { guestBinaryPath } from "../../../tools/setup/guest.mjs";
import { readPackage } from "../sandbox-package.ts";

const [dataDir = "", what = "", ...words] = process.argv.slice(2);

function say(fact: Record<string, unknown>): void {
  writeSync(1, `${JSON.stringify(fact)}\n`);
}

/**
 * Starts a process and writes each event of its output to a file before it reads the next one, so that everything that
 * is acknowledged is also in the file.
 */
async function follow(engine: Engine, driver: DriverName, logFile: string, command: string): Promise<void> {
  const sandbox = await engine.create({ driver });
  const started = await sandbox.spawn(
    { argv: ["bash", "-c", command], stdin: true, windowBytes: 65_536 },
    { keep: true },
  );
  say({ sandboxId: sandbox.id, streamId: started.streamId });
  const log = openSync(logFile, "a");
  let bytes = 0;
  for await (const { stream, data } of started) {
    if (stream !== "stdout") continue;
    writeSync(log, data);
    bytes += data.byteLength;
    say({ bytes });
  }
  closeSync(log);
  say({ exit: await started.wait() });
}

/** Creates a sandbox whose process has counted to two. */
async function startCounting(
  engine: Engine,
  driver: DriverName,
  logFile: string,
  more: Record<string, unknown> = {},
): Promise<SandboxId> {
  const sandbox = await engine.create({ driver });
  const counting = await sandbox.spawn(
    {
      argv: ["bash", "-c", "i=0; while read word; do i=$((i+1)); echo $i >>/home/user/count; echo $i; done"],
      stdin: true,
    },
    { keep: true },
  );
  await counting.writeStdin("one\ntwo\n");
  const log = openSync(logFile, "a");
  for await (const { data } of counting) {
    writeSync(log, data);
    if (data.toString().includes("2")) break;
  }
  closeSync(log);
  say({ sandboxId: sandbox.id, streamId: counting.streamId, ...more });
  return sandbox.id;
}

/** Pauses and resumes a sandbox. `atStep` below stops it for ever at one step, and may make another one fail before. */
async function moveUntil(engine: Engine, logFile: string): Promise<void> {
  const id = await startCounting(engine, "gvisor", logFile);
  await engine.pause(id);
  await engine.resume(id);
}

/** Creates one sandbox per step. Each is paused and resumed, and stops for ever at its step. */
async function moveEachUntil(engine: Engine, logDir: string, steps: string[]): Promise<void> {
  for (const [index, step] of steps.entries()) {
    const id = await startCounting(engine, "gvisor", join(logDir, `output-${index}.log`), { step });
    stepOf.set(id, step);
    const stands = new Promise<void>((resolve) => standing.set(id, resolve));
    void engine.pause(id).then(() => engine.resume(id));
    await stands;
  }
}

/**
 * Pauses a sandbox whose process holds so much memory that saving takes a while. The process can report whether its
 * memory is unchanged.
 */
async function pauseLarge(engine: Engine, megabytes: string): Promise<void> {
  const sandbox = await engine.create({});
  const script = `
import hashlib, os, sys
held = os.urandom(${Number(megabytes)} << 20)
digest = hashlib.sha256(held).hexdigest()
print(digest, flush=True)
for line in sys.stdin:
    print("same" if hashlib.sha256(held).hexdigest() == digest else "different", flush=True)
`;
  const holding = await sandbox.spawn({ argv: ["python3", "-c", script], stdin: true }, { keep: true });
  for await (const { data } of holding) if (data.includes(10)) break;
  say({ sandboxId: sandbox.id, streamId: holding.streamId });
  await engine.pause(sandbox.id);
}

/**
 * Creates a sandbox that counts until its deadline. It is also paused if `step`, at which the pause stops, is given.
 */
async function countUntil(engine: Engine, driver: DriverName, inMs: number, step: string): Promise<void> {
  const sandbox = await engine.create({ driver }, { allowUntil: uptimeMs() + 3_600_000 });
  const { streamId } = await sandbox.spawn(
    { argv: ["bash", "-c", "i=0; while :; do i=$((i+1)); echo $i >>/home/user/count; done"] },
    { keep: true },
  );
  const hasBegun = (): Promise<boolean> =>
    sandbox.files.stat("/home/user/count").then(
      () => true,
      () => false,
    );
  if (!(await pollUntil(hasBegun, { deadlineMs: 120_000 }))) throw new Error("Nothing counts");
  const until = uptimeMs() + inMs;
  await sandbox.allowUntil(until);
  say({ sandboxId: sandbox.id, streamId, until });
  if (step !== "") await engine.pause(sandbox.id);
}

/** Copies a checkpoint of a sandbox out of the engine, removes it, and imports it again while the sandbox runs. */
async function fetchBack(engine: Engine): Promise<void> {
  const sandbox = await engine.create({});
  const { id } = sandbox;
  await sandbox.files.write("/home/user/note", "one");
  await engine.pause(id);
  const { manifest, memory } = await engine.checkpointFiles(id, 1);
  const memoryDir = join(dataDir, "elsewhere");
  await mkdir(memoryDir);
  for (const { name, path } of memory) await copyFile(path, join(memoryDir, name));
  await engine.resume(id);
  await sandbox.files.write("/home/user/note", "two");
  await engine.pause(id);
  await engine.resume(id);
  await engine.removeCheckpoint(id, 1);
  say({ sandboxId: id });
  await engine.importCheckpoint(id, { manifest, memoryDir, layers: [] });
}

/** The step at which an operation stops for ever, so that a test can kill this process there. */
const lastStep =
  {
    move: words[1],
    fork: words[1],
    snapshot: words[1],
    import: words[1],
    "fetch-back": words[0],
    release: words[1],
    deadline: words[2],
  }[what] ?? "";
/** The step of each sandbox, where several sandboxes stop at different steps. */
const stepOf = new Map<SandboxId, string>();
const standing = new Map<SandboxId, () => void>();
const engine = await Engine.open({
  dataDir,
  guestPath: guestBinaryPath(),
  atStep: async (step, id) => {
    if (what === "move" && step === words[2]) throw new Error("no space left on device");
    if (step !== lastStep && step !== stepOf.get(id)) return;
    standing.get(id)?.();
    say({ step });
    await new Promise(() => undefined);
  },
});
engine.events.listen((event) => {
  if (event.type === "state") say({ state: event.to, sandboxId: event.sandboxId });
});
say({ repairs: engine.repairs });
switch (what) {
  case "follow": {
    const [driver = "gvisor", logFile = "", command = ""] = words;
    await follow(engine, driver as DriverName, logFile, command);
    break;
  }
  case "create": {
    const sandbox = await engine.create({ driver: (words[0] ?? "gvisor") as DriverName });
    say({ created: sandbox.id });
    break;
  }
  case "create-and-kill": {
    const sandbox = await engine.create({ driver: (words[0] ?? "gvisor") as DriverName });
    say({ created: sandbox.id });
    await sandbox.kill();
    say({ killed: sandbox.id });
    break;
  }
  case "hold":
    await pauseLarge(engine, words[0] ?? "");
    break;
  case "import":
    await engine.importSandbox(await readPackage(words[0] ?? ""));
    break;
  case "fetch-back":
    await fetchBack(engine);
    break;
  case "release": {
    const sandbox = await engine.create({});
    if (words[0] === "paused") await engine.pause(sandbox.id);
    await engine.release(sandbox.id);
    break;
  }
  case "move":
    await moveUntil(engine, words[0] ?? "");
    break;
  case "move-each":
    await moveEachUntil(engine, words[0] ?? "", words.slice(1));
    break;
  case "fork":
    await engine.fork(await startCounting(engine, "gvisor", words[0] ?? ""), { count: 2 });
    break;
  case "deadline": {
    const [driver = "gvisor", inMs = "", step = ""] = words;
    await countUntil(engine, driver as DriverName, Number(inMs), step);
    break;
  }
  case "snapshot": {
    const [logFile = "", , driver = ""] = words;
    const id = await startCounting(engine, driver as DriverName, logFile);
    await engine.saveFiles(id, join(dataDir, "saved"), { signal: new AbortController().signal });
    break;
  }
  default:
    throw new Error(`Unknown action ${what}`);
}
say({ done: true });
// The process stays, as a server does, until it is killed.
setInterval(() => undefined, 1_000_000);
