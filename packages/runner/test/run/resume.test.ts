import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { bootId, readStartTicks } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { beforeEach, expect, test } from "vitest";
import { readJournal } from "../../src/journal/journal.ts";
import type { TaskSpec } from "../../src/models/task.ts";
import type { RunItem } from "../../src/run/run-options.ts";
import { Calculator, canRun, RunPlace, whyNot } from "../support/run.ts";

beforeEach(({ skip }) => skip(!canRun, whyNot));

const { signal } = new AbortController();
const limits = { memoryBytes: 2 ** 26, cpus: 1, processes: 64, diskBytes: 2 ** 26, tmpBytes: 2 ** 26 };

/** Tasks that take no time, with an id each. */
async function quickItems(calculator: Calculator, ids: readonly string[]): Promise<RunItem[]> {
  const { instance } = calculator;
  const sandbox = { ...instance.task.sandbox, limits };
  const quick = { test: "true", parser: "exit-code" as const, failToPass: [], passToPass: [] };
  const task: TaskSpec = { ...instance.task, sandbox, ...quick };
  return ids.map((id) => ({ instance: { ...instance, id, testPatch: "", task }, prediction: null }));
}

test("a run that has ended is not done again, and its report stays the same", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const items = [await calculator.item(calculator.files.fixed, "a"), await calculator.item(null, "b")];
  const first = await place.run(items);
  const second = await place.run(items);
  expect(place.sandboxes).toBe(0);
  expect(second.instances).toEqual(first.instances);
  expect(second).toMatchObject({ runId: "run", interrupted: false, startedAt: first.startedAt });
});

test("only what is judged by other things is done again", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const kept = await calculator.item(calculator.files.wrong, "kept");
  await place.run([kept, await calculator.item(calculator.files.wrong, "changed")]);
  const report = await place.run([kept, await calculator.item(calculator.files.fixed, "changed")]);
  const started = place.events.flatMap((event) => (event.type === "instance.start" ? event.instance : []));
  expect(started).toEqual(["o__r-1@changed"]);
  expect(report.instances.map(({ verdict }) => verdict)).toEqual(["unresolved", "resolved"]);
});

test("a failure of the infrastructure is tried again by the next call", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const item = await calculator.item(calculator.files.fixed);
  const broken = place.client({
    onStart: () => {
      throw new SandboxError("unavailable", "the server is gone", { suggestion: "Start it." });
    },
  });
  const first = await place.runOne(item, { client: broken });
  expect(first).toMatchObject({ verdict: "infra_error", reason: "the server is gone Start it." });
  expect(await place.runOne(item)).toMatchObject({ verdict: "resolved" });
});

test("one failure of the infrastructure does not decide: the stage is tried a second time", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const failed = new Set<string>();
  const client = place.client({
    onStart: ({ snapshot }) => {
      const kind = snapshot ?? "template";
      if (failed.has(kind)) return;
      failed.add(kind);
      throw new SandboxError("unavailable", "the server is busy");
    },
  });
  const report = await place.runOne(await calculator.item(calculator.files.fixed), { client });
  expect(report.verdict).toBe("resolved");
  expect(report.stages.filter(({ tries }) => tries === 2).map(({ stage }) => stage)).toEqual(["env", "baseline"]);
  expect(await client.list({})).toEqual([]);
});

test("an abort ends and removes everything, and the next call does what is left", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const [done, slow] = await quickItems(calculator, ["done", "slow"]);
  if (done === undefined || slow === undefined) throw new Error("there are two items");
  const sleeping = { ...slow, instance: { ...slow.instance, task: { ...slow.instance.task, test: "sleep 1000" } } };
  const abort = new AbortController();
  const first = await place.run([done, sleeping], {
    signal: abort.signal,
    onEvent: (event) => {
      const isTest = event.type === "command.start" && event.instance === "slow" && event.stage === "baseline";
      if (isTest) abort.abort(new Error("interrupted by the user"));
    },
  });
  expect(first).toMatchObject({ interrupted: true, instances: [{ id: "done", verdict: "resolved" }] });
  expect(await place.client().list({})).toEqual([]);
  const second = await place.run([done, slow]);
  expect(second).toMatchObject({ interrupted: false, counts: { resolved: 2 } });
  const started = place.events.flatMap((event) => (event.type === "instance.start" ? event.instance : []));
  expect(started).toEqual(["slow"]);
});

test("a run that drains ends what it has begun and begins nothing more", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const items = await quickItems(calculator, ["a", "b", "c"]);
  const drain = new AbortController();
  const report = await place.run(items, {
    drain: drain.signal,
    onEvent: (event) => {
      if (event.type === "instance.start") drain.abort();
    },
  });
  expect(report).toMatchObject({ interrupted: true, counts: { resolved: 1 } });
  expect(report.instances).toHaveLength(1);
  const journal = await readJournal(join(place.options([]).directory, "events.ndjson"));
  expect(journal.map(({ type }) => type)).toContain("run.drain");
  expect(await place.run(items)).toMatchObject({ interrupted: false, counts: { resolved: 3 } });
});

test("sandboxes that a dead process of the same run has left are removed, and no others", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const [item] = await quickItems(calculator, ["a"]);
  if (item === undefined) throw new Error("there is an item");
  const client = place.client();
  const boot = await bootId();
  const living = `${process.pid}.${await readStartTicks(process.pid)}.${boot}`;
  const start = async (name: string, run: string, owner: string) => {
    const labels = { "atoll.runner.run": run, "atoll.runner.owner": owner };
    const { config } = { config: item.instance.task.sandbox };
    return (await client.start({ config, name, labels, network: false, signal })).id;
  };
  await start("dead", "run", `${process.pid}.1.${boot}`);
  await start("rebooted", "run", living.replace(boot, "another-boot"));
  const left = [
    await start("alive", "run", living),
    await start("other-run", "run-2", `${process.pid}.1.${boot}`),
    await start("prefix", "ru", `${process.pid}.1.${boot}`),
  ];
  await place.run([item]);
  expect((await client.list({})).map(({ id }) => id).toSorted()).toEqual(left.toSorted());
});

test("two processes do not work on one run, and the lock of a dead one is no obstacle", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const items = await quickItems(calculator, ["a"]);
  await place.run(items);
  const { directory } = place.options([]);
  const lock = join(directory, "run.lock");
  const owner = { pid: process.pid, startTicks: await readStartTicks(process.pid), bootId: await bootId() };
  await writeFile(lock, JSON.stringify(owner));
  await expect(place.run(items)).rejects.toMatchObject({ code: "in_use" });
  await writeFile(lock, JSON.stringify({ ...owner, startTicks: 1 }));
  await expect(place.run(items)).resolves.toMatchObject({ interrupted: false });
  await writeFile(lock, "");
  await expect(place.run(items)).resolves.toMatchObject({ interrupted: false });
});

test("what cannot be a run is refused before anything is done", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const [item] = await quickItems(calculator, ["a"]);
  if (item === undefined) throw new Error("there is an item");
  await expect(place.run([item], { runId: "../x" })).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(place.run([item, item])).rejects.toThrow("Cannot run a@task: it is there twice");
  await writeFile(join(place.root, "file"), "");
  await expect(place.run([item], { directory: join(place.root, "file", "run") })).rejects.toThrow(/ENOTDIR/);
  await rm(join(place.root, "file"));
});

test("items run at the same time as far as jobs allow", async () => {
  await using place = await RunPlace.make();
  await using calculator = await Calculator.make();
  const items = await quickItems(calculator, ["a", "b", "c", "d"]);
  let running = 0;
  let most = 0;
  await place.run(items, {
    jobs: 2,
    onEvent: ({ type }) => {
      if (type === "instance.start") running += 1;
      if (type === "instance.end") running -= 1;
      most = Math.max(most, running);
    },
  });
  expect(most).toBe(2);
});
