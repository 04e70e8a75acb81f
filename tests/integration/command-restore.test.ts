import { RunCommand } from "@atoll/protocol";
import { createLog } from "@atoll/server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SandboxCommands } from "../../packages/server/src/commands/sandbox-commands.ts";
import { openTestEngine, type TestEngine } from "../support/test-engine.ts";
import { readAll } from "../support/test-manager.ts";

let host: TestEngine;
beforeAll(async () => {
  host = await openTestEngine();
});
afterAll(() => host.dispose());

test("a command that is started while the previous server's commands are restored comes after them", async () => {
  const sandbox = await host.engine.create({ driver: "local" });
  const options = {
    sandbox,
    keptCommands: 10,
    keptLogBytes: 1_000_000,
    environment: () => ({}),
    rollbacks: () => 0,
    logger: createLog("silent"),
    onStart: () => undefined,
    onEnd: () => undefined,
  };
  const keyed = RunCommand.parse({ shell: "echo once >>/tmp/count" });
  const before = await new SandboxCommands(options).run(keyed, { idempotencyKey: "key" });
  await before.waitEnd();

  const next = new SandboxCommands(options);
  const restoring = next.restore();
  const [again, other] = await Promise.all([
    next.run(keyed, { idempotencyKey: "key" }),
    next.run(RunCommand.parse({ shell: "cat /tmp/count" })),
  ]);
  await restoring;
  expect(again.info().id).toBe(before.info().id);
  // Its log does not look like one that a server left before it could start the command.
  expect((await readAll(other)).text).toBe("once\n");
  expect(next.list().map(({ id }) => id)).toEqual([before.info().id, other.info().id]);
});
