// @module-tag gvisor
import type { Sandbox } from "@atoll/engine";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

let host: TestEngine;
beforeAll(async () => {
  host = await openTestEngine();
});
afterAll(() => host.dispose());

const sum = (phases: Record<string, number>): number => Object.values(phases).reduce((a, b) => a + b, 0);

describe("a sandbox that was paused and resumed", () => {
  test("has its processes with their pids, input, output and exit code", async () => {
    const sandbox = await host.engine.create({});
    const counter = await sandbox.spawn({
      argv: [
        "bash",
        "-c",
        "exec 8>>log; i=0; while read line; do i=$((i+1)); echo $line $i; echo $i >&8; done; exit 7",
      ],
      stdin: true,
    });
    const talk = new Conversation(counter);
    await counter.writeStdin("a\nb\n");
    await talk.until(/b 2\n/);

    const paused = await host.engine.pause(sandbox.id);
    expect(sandbox.state).toBe("paused");
    expect(Object.keys(paused.phases)).toEqual(["freeze", "save", "layer", "verify"]);
    expect(sum(paused.phases)).toBeCloseTo(paused.totalMs, 3);

    const resumed = await host.engine.resume(sandbox.id);
    expect(sandbox.state).toBe("running");
    expect(sum(resumed.phases)).toBeCloseTo(resumed.totalMs, 3);
    await counter.writeStdin("c\n");
    expect(await talk.until(/\n/)).toBe("c 3\n");
    await counter.closeStdin();
    expect(await talk.toEnd()).toBe("");
    expect((await counter.wait()).exitCode).toBe(7);
    expect((await runIn(sandbox, "cat log")).output).toBe("1\n2\n3\n");
    await sandbox.kill();
  });

  test.for<[string, (sandbox: Sandbox) => Promise<unknown>]>([
    ["its files did", (sandbox) => sandbox.files.stat("/home/user")],
    ["counting its processes did", countDuring],
  ])("does not grow in memory by what %s", async ([, operation]) => {
    const { engine } = host;
    const sandbox = await engine.create({});
    const pauseAfter = async (operations: number): Promise<number> => {
      for (let n = 0; n < operations; n += 1) await operation(sandbox);
      await engine.pause(sandbox.id);
      await engine.resume(sandbox.id);
      return (await engine.checkpoints(sandbox.id)).at(-1)?.memoryBytes ?? 0;
    };
    const few = await pauseAfter(1);
    const many = await pauseAfter(50);
    expect(many - few).toBeLessThan(50 * 1024);
    await sandbox.kill();
  });
});

async function countDuring(sandbox: Sandbox): Promise<void> {
  const process = await sandbox.spawn({ argv: ["cat"], stdin: true });
  expect((await sandbox.usage()).processes).toBe(1);
  await process.closeStdin();
  await process.wait();
  process.release();
}
