import { SandboxId } from "@atoll/protocol";
import { pino } from "pino";
import { expect, test } from "vitest";
import type { ManagedSandbox } from "../../src/manager/managed-sandbox.ts";
import { PauseResume, type PauseResumeOptions } from "../../src/manager/pause-resume.ts";
import { Turns } from "../../src/support/turns.ts";

test("pausing all skips paused and failed sandboxes, and logs only those that could not be paused", async () => {
  const states = { a: "running", b: "paused", c: "failed", d: "running" };
  const sandboxes = Object.entries(states).map(([letter, state]) => {
    const clock = { stop: () => undefined, restart: () => undefined };
    const facts = { persistent: false };
    const id = SandboxId.parse(letter.repeat(20));
    return {
      id,
      sandbox: { state },
      facts,
      clock,
      transitions: new Turns(),
      info: () => ({}),
    } as unknown as ManagedSandbox;
  });
  const asked: string[] = [];
  const pause = async (id: string): Promise<unknown> => {
    asked.push(id.charAt(0));
    if (id.startsWith("d")) throw new Error("something cannot be saved");
    return { checkpoint: 1, phases: {}, totalMs: 0, ended: [] };
  };
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const find = (id: string) => sandboxes.find((managed) => managed.id === id);
  const sleep = new PauseResume({ engine: { pause }, find, log } as unknown as PauseResumeOptions);
  await sleep.pauseAll(sandboxes);
  expect(asked).toEqual(["a", "d"]);
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([{ sandboxId: "d".repeat(20), level: 40 }]);
});
