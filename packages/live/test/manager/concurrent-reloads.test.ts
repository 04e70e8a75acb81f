import { renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
// The time between two writes is what is tested; no test waits for it to be long enough.
// oxlint-disable-next-line no-restricted-imports
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { thorough } from "../../../../tools/thoroughness.mjs";
import type { TestApp } from "../../src/testing/index.ts";
import { counter, startCounter } from "../support/counter-app.ts";

/** A version that says which one it is. */
const answering = (n: number): string => counter({ calls: `version: () => ${n},` });
const path = "src/counter.ts";

let app: TestApp;
let last = 0;
beforeAll(async () => {
  app = await startCounter({ [path]: answering(0) }, { autoReload: true, probationMs: 0 });
  await app.call("counter", "add", 5);
});
afterAll(() => app.stop());

const serving = (): Promise<unknown> => app.call("counter", "version").catch((error: unknown) => error);
const put = (n: number): void => writeFileSync(join(app.folder, path), answering(n));

test.for([5, 20, 45])("of two writes %i ms apart the last is served, and no state is lost", async (gapMs) => {
  for (let round = 0; round < thorough(4, 40); round += 1) {
    put(++last);
    await delay(gapMs);
    put(++last);
    await expect.poll(serving).toBe(last);
  }
  expect(await app.call("counter", "add", 0)).toBe(5);
});

test("every atomic save is served", async () => {
  for (let round = 0; round < thorough(10, 100); round += 1) {
    writeFileSync(join(app.folder, `${path}.tmp`), answering(++last));
    renameSync(join(app.folder, `${path}.tmp`), join(app.folder, path));
    await expect.poll(serving).toBe(last);
  }
});

test("a checkout of 500 files is one reload", async () => {
  const started = (): number => app.events.filter(({ type }) => type === "reload.start").length;
  const before = started();
  const names = Array.from({ length: 500 }, (_, at) => `many-${at}`);
  for (const name of names) writeFileSync(join(app.folder, `src/${name}.ts`), `export const n = ${name.length};`);
  writeFileSync(
    join(app.folder, path),
    `${names.map((name) => `import "./${name}.ts";`).join("\n")} ${answering(++last)}`,
  );
  await expect.poll(serving).toBe(last);
  expect(started() - before).toBe(1);
  put(++last);
  await expect.poll(serving).toBe(last);
});

test("reloads, restarts and rollbacks requested at once come one after the other, and none is lost", async () => {
  const { manager, id } = app;
  manager.disableAutoReload(id);
  const from = (n: number) => ({ sources: new Map([[path, answering(n)]]) });
  const { generation } = app.info;
  const [one, two] = await Promise.all([manager.hotReload(id, from(++last)), manager.hotReload(id, from(++last))]);
  expect(two.generation).toBe(one.generation + 1);
  expect(await serving()).toBe(last);

  const [, third] = await Promise.all([manager.restart(id), manager.hotReload(id, from(++last))]);
  expect(third.result).toBe("reloaded");
  expect(await serving()).toBe(last);

  const [fourth] = await Promise.all([manager.hotReload(id, from(++last)), manager.restart(id)]);
  expect(app.info.generation).toBe(fourth.generation);
  expect(await serving()).toBe(last);

  const rolledBack = await Promise.all([manager.hotReload(id, from(++last)), manager.rollback(id, { generation })]);
  expect(rolledBack[1].generation).toBe(generation);
  expect(app.info).toMatchObject({ state: "running", generation });
  expect(await app.call("counter", "add", 0)).toBe(5);
});

test("messages during reloads arrive once each and in their order", async () => {
  const recorder = (n: number): string =>
    counter({ calls: `note(state, m: number) { (state.notes ??= []).push(m); return ${n}; },` });
  await app.reload({ [path]: recorder(0) });
  const rounds = thorough(10, 100);
  const calls: Promise<unknown>[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    for (let m = 0; m < 20; m += 1) calls.push(app.call("counter", "note", calls.length));
    await app.manager.hotReload(app.id, { sources: new Map([[path, recorder(round)]]) });
  }
  await Promise.all(calls);
  const { notes } = (await app.call("counter", "state")) as { notes: number[] };
  expect(notes).toEqual(Array.from({ length: rounds * 20 }, (_, at) => at));
});
