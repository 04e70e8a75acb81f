import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { run } from "@atoll/host";
import { ContainerId } from "@atoll/protocol";
import { beforeAll, expect, test } from "vitest";
import { FakeSentry } from "../support/fake-sentry.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";

let guest: string;
beforeAll(async () => {
  guest = await guestProgram("sanitized");
}, buildTimeoutMs);

const id = ContainerId.parse(`atoll-${"c".repeat(24)}`);

/** Makes the paths in a directory whose name is longer than that of a socket can be. */
function places(temporary: TemporaryDirectory): { state: string; memory: string; outcome: string; socket: string } {
  const state = temporary.join("state".repeat(25));
  mkdirSync(state);
  const memory = temporary.join("memory");
  mkdirSync(memory);
  return { state, memory, outcome: temporary.join("outcome"), socket: `${state}/runsc-${id}.sock` };
}

async function checkpoint(
  { socket, memory, outcome }: ReturnType<typeof places>,
  input = "\n",
): Promise<number | null> {
  const words = ["checkpoint", socket, memory, "checkpoint.img", outcome, JSON.stringify({ method: "save" })];
  const { exitCode } = await run(guest, words, {
    signal: AbortSignal.timeout(testTimeoutMs),
    timeoutMs: testTimeoutMs,
    input,
  });
  return exitCode;
}

test.for([
  ["is saved", '{"success":true,"err":"","result":{}}', 0, "0\n"],
  ["cannot be saved", '{"success":false,"err":"open file","result":null}', 1, "1\n"],
  ["hangs up", "", 1, "1\n"],
] as const)("of a sandbox that %s the outcome is written to its file", async ([, answer, exitCode, outcome]) => {
  using temporary = new TemporaryDirectory();
  const at = places(temporary);
  await using sentry = await FakeSentry.listen(at.state, id);
  sentry.instead = answer;
  expect(await checkpoint(at)).toBe(exitCode);
  expect(sentry.calls).toEqual(["save"]);
  expect(readFileSync(at.outcome, "utf8")).toBe(outcome);
  expect(readFileSync(`${at.outcome}.stderr`, "utf8").trim()).toBe(exitCode === 0 ? "" : answer);
});

test("without a listener nothing is begun", async () => {
  using temporary = new TemporaryDirectory();
  const at = places(temporary);
  expect(await checkpoint(at)).toBe(3);
  expect(readdirSync(at.memory)).toEqual([]);
  expect(readdirSync(temporary.path)).not.toContain("outcome");
});

test("without a byte on stdin nothing is begun", async () => {
  using temporary = new TemporaryDirectory();
  const at = places(temporary);
  await using sentry = await FakeSentry.listen(at.state, id);
  expect(await checkpoint(at, "")).toBe(3);
  expect(sentry.calls).toEqual([]);
  expect(readdirSync(at.memory)).toEqual([]);
  expect(readdirSync(temporary.path)).not.toContain("outcome.stderr");
});

test("an existing image is not overwritten", async () => {
  using temporary = new TemporaryDirectory();
  const at = places(temporary);
  await using sentry = await FakeSentry.listen(at.state, id);
  sentry.instead = '{"success":true,"err":"","result":{}}';
  expect(await checkpoint(at)).toBe(0);
  expect(await checkpoint(at)).toBe(3);
  expect(sentry.calls).toEqual(["save"]);
});
