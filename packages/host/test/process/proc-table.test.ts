import { describe, expect, test } from "vitest";
import { startHostProcess } from "../../src/process/host-process.ts";
import {
  bootId,
  groupMembers,
  isAlive,
  parseProcessStat,
  readProcessStat,
  readStartTicks,
} from "../../src/process/proc-table.ts";

/** These are fields 3 to 22 of a real line. */
const rest = "S 7 4242 4242 0 -1 4194560 135 0 0 0 1 2 3 4 20 0 1 0 98765 2420736 200 18446744073709551615";

describe("a line of stat", () => {
  test.for([
    { comm: "bash" },
    { comm: "tmux: server" },
    { comm: "a) R 1 1 1 (b" },
    { comm: "((" },
    { comm: ") S 9 9 9" },
    { comm: "new\nline" },
    { comm: "" },
  ])("a command named $comm does not shift the fields", ({ comm }) => {
    expect(parseProcessStat(`4242 (${comm}) ${rest}\n`)).toEqual({
      pid: 4242,
      state: "S",
      parentPid: 7,
      groupId: 4242,
      startTicks: 98_765,
    });
  });

  test.for(["", "4242", "4242 (cut", "4242 (cut) S 7", "x (y) S a b"])("%j is no line of stat", (line) => {
    expect(parseProcessStat(line)).toBeUndefined();
  });
});

describe("identity", () => {
  const self = async (): Promise<{ pid: number; startTicks: number; bootId: string }> => ({
    pid: process.pid,
    startTicks: (await readStartTicks(process.pid)) ?? -1,
    bootId: await bootId(),
  });

  test("this process is alive", async () => {
    expect(await isAlive(await self())).toBe(true);
  });

  test("another start time is another process", async () => {
    const identity = await self();
    expect(await isAlive({ ...identity, startTicks: identity.startTicks + 1 })).toBe(false);
  });

  test("another boot is another process", async () => {
    expect(await isAlive({ ...(await self()), bootId: "00000000-0000-0000-0000-000000000000" })).toBe(false);
  });

  test("a process that is not there is not alive", async () => {
    expect(await readStartTicks(2 ** 30)).toBeUndefined();
    expect(await isAlive({ ...(await self()), pid: 2 ** 30 })).toBe(false);
  });

  test("a process that waits to be reaped is not alive, and in no group", async () => {
    const neverReaps = 'my $child = fork(); exit unless $child; $| = 1; print "$child\\n"; sleep 1000';
    const parent = await startHostProcess("perl", ["-e", neverReaps], { signal: new AbortController().signal });
    try {
      let pid = 0;
      for await (const { data } of parent) {
        pid = Number(data.toString());
        break;
      }
      await expect.poll(async () => (await readProcessStat(pid))?.state).toBe("Z");
      const startTicks = (await readStartTicks(pid)) ?? -1;
      expect(await isAlive({ pid, startTicks, bootId: await bootId() })).toBe(false);
      expect(await groupMembers(parent.pid)).toEqual([parent.pid]);
    } finally {
      await parent.kill("SIGKILL");
      await parent.wait();
    }
  });
});
