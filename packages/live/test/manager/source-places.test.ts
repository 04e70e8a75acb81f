import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { LiveEvent } from "../../src/events/live-event.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";
import { RequestFailed } from "../../src/wire/connection.ts";

const main = `import { defineSupervisor } from "@atoll/live/app";
import { worker } from "./worker.ts";
export default defineSupervisor({ children: [{ id: "worker", start: [worker] }] });
`;
/** Types and unused lines, which compiled code does not have, come before the mistake. */
const worker = `import { defineService } from "@atoll/live/app";
import { helper } from "./helper.ts";

interface State {
  count: number;
}

export const worker = defineService({
  init: (): State => ({ count: 0 }),
  call: {
    work(state: State, by: number): number {
      return helper(state.count, by);
    },
  },
});
`;
const helper = `export type Unused = { a: string };

export function helper(count: number, by: number): number {
  if (by < 0) throw new RangeError("negative");
  return count + by;
}
`;

test("stacks and places of errors are those of the sources, also after a reload", async () => {
  const path = mkdtempSync(join(tmpdir(), "atoll-places-"));
  const events: LiveEvent[] = [];
  const stateDir = join(path, "state");
  await using manager = new LiveManager({ hosts: [new ProcessHost()], stateDir });
  manager.onEvent((event) => events.push(event));
  const folder = join(path, "app");
  try {
    mkdirSync(folder);
    writeFileSync(join(folder, "app.ts"), main);
    writeFileSync(join(folder, "worker.ts"), worker);
    writeFileSync(join(folder, "helper.ts"), helper);
    await manager.create("places", folder, { entry: "app.ts" });
    const failure = await manager.call("places", "worker", "work", -1).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RequestFailed);
    expect((failure as RequestFailed).error.stack).toMatch(/helper\.ts:4:21\).*worker\.ts:12:14\)/s);
    expect((failure as RequestFailed).error.stack).not.toContain("runtime-");
    await expect
      .poll(() => events.find(({ type }) => type === "service.crash"))
      .toMatchObject({
        stack: expect.stringContaining(`${folder}/helper.ts:4:21`),
        place: { file: "helper.ts", line: 4, column: 21, frame: expect.stringContaining("> 4 |   if (by < 0)") },
      });

    events.length = 0;
    writeFileSync(join(folder, "helper.ts"), `// A comment.\n\n${helper}`);
    await manager.hotReload("places");
    await manager.call("places", "worker", "work", -1).catch(() => undefined);
    await expect
      .poll(() => events.find(({ type }) => type === "service.crash"))
      .toMatchObject({
        place: { file: "helper.ts", line: 6, column: 21 },
      });

    writeFileSync(join(folder, "helper.ts"), `${helper}\n\nfoo();\ndeclare function foo(): void;\n`);
    await expect(manager.hotReload("places")).rejects.toThrow("foo is not defined");
    expect(events.findLast(({ type }) => type === "reload.failed")).toMatchObject({
      phase: "prepare",
      place: { file: "helper.ts", line: 9, column: 1 },
    });
  } finally {
    await manager[Symbol.asyncDispose]();
    rmSync(path, { recursive: true, force: true });
  }
});
