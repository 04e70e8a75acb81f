import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostLeftovers } from "../support/host-leftovers.ts";
import { openTestEngine, runIn } from "../support/test-engine.ts";

const nothing = { processes: [], mounts: [], cgroups: [], sandboxes: [] };

test(
  "a sandbox goes on without its driver and can be killed, and new ones cannot be started",
  { tags: "gvisor" },
  async () => {
    const first = await openTestEngine();
    const { dataDir } = first;
    const { id } = await first.engine.create({ driver: "gvisor" });
    await first.engine.close();
    const next = await openTestEngine({ dataDir, runscPath: join(dataDir, "no-runsc") });
    expect(next.engine.repairs).toMatchObject([{ what: `sandbox ${id}`, done: "adopted" }]);
    expect((await runIn(next.engine.get(id), "echo alive")).output).toBe("alive\n");
    await expect(next.engine.create({ driver: "gvisor" })).rejects.toMatchObject({ code: "unsupported" });
    expect(await next.engine.kill(id)).toBe(true);
    expect(await hostLeftovers(dataDir)).toEqual(nothing);
    await next.dispose();
  },
);

test("a sandbox whose template is missing can be killed completely", async () => {
  const first = await openTestEngine();
  const { dataDir } = first;
  const { id } = await first.engine.create({ driver: "local" });
  await first.engine.close();
  await rm(join(dataDir, "templates"), { recursive: true });
  const next = await openTestEngine({ dataDir });
  expect(next.engine.list().map((record) => record.id)).toEqual([id]);
  expect(await next.engine.kill(id)).toBe(true);
  expect(await hostLeftovers(dataDir)).toEqual(nothing);
  await next.dispose();
});
