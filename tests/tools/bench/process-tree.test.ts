import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { parseProcessorTimes } from "../../bench/load.ts";
import { parseEntry, ProcessTable, pssBytes } from "../../bench/process-tree.ts";

const fields = "S 7 10 10 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 4711 1000 10";

test("a command with spaces and parentheses does not shift the fields", () => {
  expect(parseEntry(`42 (a) b (c) ${fields}`)).toEqual({ pid: 42, parentPid: 7, startTicks: 4711, cpuTicks: 3 });
});

test("a zombie, and a process that has ended, have no entry", () => {
  expect(parseEntry(`42 (a) ${fields.replace("S", "Z")}`)).toBeUndefined();
  expect(parseEntry("")).toBeUndefined();
});

test("the family of a process is itself and all its descendants, in any order of the table", () => {
  const entry = (pid: number, parentPid: number) => ({ pid, parentPid, startTicks: 1, cpuTicks: 0 });
  const table = new ProcessTable([entry(5, 4), entry(4, 2), entry(3, 1), entry(2, 1)]);
  expect(table.family(2).map(({ pid }) => pid)).toEqual([2, 4, 5]);
  expect(table.has({ pid: 5, startTicks: 2 })).toBe(false);
});

test("a living child is found and uses memory, and is not found after its end", async () => {
  const child = spawn("/bin/sleep", ["60"]);
  await once(child, "spawn");
  const self = (await ProcessTable.read()).family(process.pid).find(({ pid }) => pid === child.pid);
  expect(self).toBeDefined();
  if (self === undefined) return;
  expect(await pssBytes(self.pid)).toBeGreaterThan(0);
  child.kill("SIGKILL");
  await once(child, "exit");
  expect((await ProcessTable.read()).has(self)).toBe(false);
  expect(await pssBytes(self.pid)).toBe(0);
});

test("time stolen by the host of the machine is busy, time spent waiting for a disk is idle", () => {
  const stat = "cpu  10 1 20 100 5 0 2 30 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
  expect(parseProcessorTimes(stat)).toEqual({ total: 168, idle: 105 });
});
