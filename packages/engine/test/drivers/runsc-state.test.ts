import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ContainerId, type ContainerRef } from "@atoll/protocol";
import { expect, test } from "vitest";
import { readState } from "../../src/drivers/gvisor/runsc-state.ts";
import { SandboxLayout } from "../../src/store/layout.ts";
import { TemporaryDirectory } from "../support/temporary-directory.ts";

const id = ContainerId.parse(`atoll-${"c".repeat(24)}`);
const ref = { id } as ContainerRef;
const whole = JSON.stringify({ status: "running", sandbox: { pid: 42 } });

async function stateFile(layout: SandboxLayout, text: string): Promise<string> {
  const dir = layout.run(id).runtimeState;
  await mkdir(dir, { recursive: true });
  const path = join(dir, `${id}_sandbox:${id}.state`);
  await writeFile(path, text);
  return path;
}

test.for(["", whole.slice(0, -1)])(
  "a state file that runsc is writing, so far %j, is read when it is whole",
  async (cut) => {
    using temporary = new TemporaryDirectory();
    const layout = new SandboxLayout(temporary.path);
    const path = await stateFile(layout, cut);
    const reading = readState(ref, layout);
    await Promise.all([reading, writeFile(path, whole)]);
    expect((await reading).sandbox.pid).toBe(42);
  },
);

test("a state file that stays incomplete is refused, with its path", async () => {
  using temporary = new TemporaryDirectory();
  const layout = new SandboxLayout(temporary.path);
  const path = await stateFile(layout, "{");
  await expect(readState(ref, layout)).rejects.toThrow(path);
});
