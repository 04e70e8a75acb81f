import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { ContainerId } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { RunscControl, saveRequest, stopState } from "../../src/drivers/gvisor/runsc-control.ts";
import { FakeSentry, runningStack, stoppedStack } from "../support/fake-sentry.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

const id = ContainerId.parse(`atoll-${"c".repeat(24)}`);

/** The directory's path is longer than the name of a socket can be. */
async function stateDirectory(temporary: TemporaryDirectory): Promise<string> {
  const dir = join(temporary.path, "deep".repeat(30));
  await mkdir(dir);
  return dir;
}

describe("freezing through runsc's socket", () => {
  test("a sandbox is frozen and woken once each, and waking it again does nothing", async () => {
    using temporary = new TemporaryDirectory();
    const dir = await stateDirectory(temporary);
    await using sentry = await FakeSentry.listen(dir, id);
    const control = new RunscControl(dir, id);
    expect(await control.freeze()).toBe(true);
    expect(sentry.frozen).toBe(1);
    await control.thaw();
    await control.thaw();
    expect(sentry.frozen).toBe(0);
  });

  test("a sandbox that was frozen twice is woken twice", async () => {
    using temporary = new TemporaryDirectory();
    const dir = await stateDirectory(temporary);
    await using sentry = await FakeSentry.listen(dir, id);
    sentry.frozen = 2;
    await new RunscControl(dir, id).thaw();
    expect(sentry.frozen).toBe(0);
  });

  test("without a listener on the socket the sandbox is not frozen this way", async () => {
    using temporary = new TemporaryDirectory();
    const control = new RunscControl(await stateDirectory(temporary), id);
    expect(await control.freeze()).toBe(false);
    await control.thaw();
  });

  test("a runsc that knows no such call is left alone", async () => {
    using temporary = new TemporaryDirectory();
    const dir = await stateDirectory(temporary);
    await using sentry = await FakeSentry.listen(dir, id);
    sentry.instead = JSON.stringify({ success: false, err: "unknown method", result: null });
    expect(await new RunscControl(dir, id).freeze()).toBe(false);
    expect(sentry.calls).toEqual(["containerManager.Pause"]);
  });

  test.for([
    ["says nothing that is understood of its threads", "goroutine 1 [running]:\nmain.main()"],
    ["does not seem to stand still", runningStack],
  ] as const)("one that %s is woken again", async ([, stacks]) => {
    using temporary = new TemporaryDirectory();
    const dir = await stateDirectory(temporary);
    await using sentry = await FakeSentry.listen(dir, id);
    sentry.stacks = () => stacks;
    expect(await new RunscControl(dir, id).freeze()).toBe(false);
    expect(sentry.frozen).toBe(0);
  });

  test.for([
    ["hangs up", ""],
    ["sends half an answer", '{"success":true'],
    ["sends something else", '{"answer":42}'],
  ] as const)("one that %s is an error", async ([, instead]) => {
    using temporary = new TemporaryDirectory();
    const dir = await stateDirectory(temporary);
    await using sentry = await FakeSentry.listen(dir, id);
    sentry.instead = instead;
    await expect(new RunscControl(dir, id).freeze()).rejects.toThrow("was not answered");
  });
});

const wokenStack = stoppedStack.replace("sync.Cond.Wait", "runnable");

test.for([
  ["all are stopped", [stoppedStack, stoppedStack], "stopped"],
  ["all have been stopped for long", [stoppedStack.replace("Wait]", "Wait, 3 minutes]")], "stopped"],
  ["all run", [runningStack, runningStack], "running"],
  ["one received SIGSTOP", [stoppedStack, runningStack], "running"],
  ["one was woken and has not run yet", [stoppedStack, wokenStack], "between"],
  ["goroutines of runsc itself do not count", [stoppedStack, "goroutine 9 [select]:\nmain.main()"], "stopped"],
  ["none is known", ["goroutine 9 [select]:\nmain.main()"], undefined],
] as const)("the state of threads of which %s", ([, stacks, state]) => {
  expect(stopState(stacks.join("\n\n"))).toBe(state);
});

test("a sandbox whose threads were woken and have not run yet is not woken a second time", async () => {
  using temporary = new TemporaryDirectory();
  const dir = await stateDirectory(temporary);
  await using sentry = await FakeSentry.listen(dir, id);
  sentry.frozen = 1;
  let looksAfterWaking = 0;
  sentry.stacks = () => {
    if (sentry.frozen > 0) return stoppedStack;
    looksAfterWaking += 1;
    return looksAfterWaking < 3 ? wokenStack : runningStack;
  };
  await new RunscControl(dir, id).thaw();
  expect(sentry.calls.filter((method) => method === "containerManager.Resume")).toHaveLength(1);
});

test.for([
  ["0.0~20240729.0", true],
  ["release-20240729.0", true],
  ["release-20240807.0", false],
  ["release-202407290.0", false],
  ["unknown", false],
] as const)("whether the words of runsc %s for saving are known: %s", ([version, isKnown]) => {
  expect(saveRequest(version) !== undefined).toBe(isKnown);
});
