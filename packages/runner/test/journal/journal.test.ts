import { appendFile, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { RunEvent } from "../../src/journal/events.ts";
import { Journal, readJournal } from "../../src/journal/journal.ts";
import { foldEvents } from "../../src/journal/run-state.ts";
import type { InstanceReport } from "../../src/models/report.ts";

let directory: string;
let path: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "atoll-runner-journal-"));
  path = join(directory, "events.ndjson");
});

afterEach(() => rm(directory, { recursive: true, force: true }));

const start = { type: "run.start", runId: "r", pid: 1, bootId: "b", instances: ["a"], options: {} } as const;
const drain = { type: "run.drain" } as const;

async function writeEvents(count: number): Promise<void> {
  const { journal } = await Journal.open(path);
  await using _journal = journal;
  for (let at = 0; at < count; at += 1) journal.append(drain);
  await journal.sync();
}

test("events have numbers in order, which go on when the journal is opened again", async () => {
  await writeEvents(3);
  await writeEvents(2);
  expect((await readJournal(path)).map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
});

test("lines of output are passed on with a number and are not written", async () => {
  const { journal } = await Journal.open(path);
  await using _journal = journal;
  const line = journal.append({ type: "command.output", instance: "a", stage: "test", line: "x" });
  journal.append(drain);
  await journal.sync();
  expect(line.seq).toBe(1);
  expect(await readJournal(path)).toMatchObject([{ seq: 2, type: "run.drain" }]);
});

test.for([
  ["a part of a line", '{"seq":3,"type":"run.dr'],
  ["zeros", "\0\0\0\0"],
  ["zeros and a newline", "\0\0\0\n"],
  ["half of a line and the next one", '{"seq":3,"ty\n{"seq":4,"at":"","type":"run.drain"}\n'],
])("a journal that ends with %s is read up to there, and goes on from there", async ([, rest = ""]) => {
  await writeEvents(2);
  const intact = await readFile(path, "utf8");
  await appendFile(path, rest);
  expect(await readJournal(path)).toHaveLength(2);
  await writeEvents(1);
  expect((await readFile(path, "utf8")).startsWith(intact)).toBe(true);
  expect((await readJournal(path)).map(({ seq }) => seq)).toEqual([1, 2, 3]);
});

test("a journal that is not there has no events", async () => {
  expect(await readJournal(path)).toEqual([]);
  await writeFile(path, "");
  expect(await readJournal(path)).toEqual([]);
});

test("the state of a run is what its events say last", () => {
  const report = { verdict: "resolved" } as InstanceReport;
  const events = [
    start,
    { type: "instance.start", instance: "a", key: "1" },
    { type: "stage.start", instance: "a", stage: "env" },
    { type: "sandbox.start", instance: "a", id: "s1" },
    { type: "sandbox.start", instance: "a", id: "s2" },
    { type: "sandbox.remove", instance: "a", id: "s1" },
    drain,
    { type: "run.end", interrupted: true },
    start,
    { type: "instance.end", instance: "b", key: "2", report },
  ].map((body, at) => ({ seq: at + 1, at: `t${at}`, ...body })) as RunEvent[];
  const state = foldEvents(events);
  expect(state).toMatchObject({ runId: "r", startedAt: "t0", ended: false, interrupted: false });
  expect(state.items.get("a")).toEqual({ key: "1", stage: "env" });
  expect(state.items.get("b")).toEqual({ key: "2", report });
  expect([...state.sandboxes]).toEqual(["s2"]);
});
