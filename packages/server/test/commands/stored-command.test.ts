import { appendFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CommandId, SandboxId, StreamId } from "@atoll/protocol";
import { afterEach, beforeEach, expect, test } from "vitest";
import { CommandStore, type EndedCommand, type RunningCommand } from "../../src/commands/stored-command.ts";

let dir: string;
let store: CommandStore;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-commands-"));
  store = new CommandStore(dir);
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const id = CommandId.parse(`cmd${"a".repeat(20)}`);
const file = (): string => join(dir, `${id}.jsonl`);
const running: RunningCommand = {
  version: 1,
  id,
  sandboxId: SandboxId.parse("b".repeat(20)),
  streamId: StreamId.parse(7),
  argv: ["true"],
  cwd: "",
  user: "user",
  hasPty: false,
  hasStdin: false,
  keepAlive: false,
  tags: {},
  logBytes: 65_536,
  startedAtMs: 1,
  state: "running",
};
const ended: EndedCommand = {
  ...running,
  state: "exited",
  endedAtMs: 2,
  stdoutBytes: 0,
  stderrBytes: 0,
  droppedBytes: 0,
  stdinBytes: 0,
  exitCode: 3,
  signal: null,
  timedOut: false,
  outOfMemory: false,
};

test("a command is loaded as it was stored last", async () => {
  store.saveStart(running);
  expect(await store.load()).toEqual([running]);
  store.saveEnd(ended);
  expect(await store.load()).toEqual([ended]);
});

test("an end that was interrupted anywhere was not stored, and can be stored again", async () => {
  store.saveStart(running);
  const start = await readFile(file());
  store.saveEnd(ended);
  const whole = await readFile(file());
  for (let length = start.byteLength; length < whole.byteLength - 1; length += 1) {
    await writeFile(file(), whole.subarray(0, length));
    expect(await store.load()).toEqual([running]);
    store.saveEnd(ended);
    expect(await store.load()).toEqual([ended]);
  }
});

test("an end is made durable, and a removed command needs nothing", async () => {
  store.saveStart(running);
  store.saveEnd(ended);
  await store.makeDurable(id);
  expect(await store.load()).toEqual([ended]);
  await store.remove(id);
  await store.makeDurable(id);
  expect(await readdir(dir)).toEqual([]);
});

test("the end of a removed command does not create it again", async () => {
  store.saveStart(running);
  await store.remove(id);
  expect(() => {
    store.saveEnd(ended);
  }).toThrow(/ENOENT/);
  expect(await readdir(dir)).toEqual([]);
});

test("a start that was interrupted anywhere leaves nothing", async () => {
  store.saveStart(running);
  const whole = await readFile(file());
  for (let length = 0; length < whole.byteLength - 1; length += 1) {
    await writeFile(file(), whole.subarray(0, length));
    expect(await store.load()).toEqual([]);
    expect(await readdir(dir)).toEqual([]);
  }
});

test("a record of another version is left alone", async () => {
  await writeFile(file(), JSON.stringify({ ...running, version: 2 }));
  expect(await store.load()).toEqual([]);
  expect(await readdir(dir)).toHaveLength(1);
});

test("a log without a record is removed", async () => {
  await mkdir(store.logDir(id));
  await appendFile(join(store.logDir(id), "head"), "x");
  expect(await store.load()).toEqual([]);
  expect(await readdir(dir)).toEqual([]);
});

test("commands are loaded in the order in which they were started", async () => {
  const later = { ...running, id: CommandId.parse(`cmd${"0".repeat(20)}`), startedAtMs: 5 };
  store.saveStart(later);
  store.saveStart(running);
  expect((await store.load()).map((command) => command.id)).toEqual([id, later.id]);
});
