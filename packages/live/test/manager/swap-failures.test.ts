import { afterAll, beforeAll, expect, test } from "vitest";
import type { TestApp } from "../../src/testing/index.ts";
import { counter, startCounter } from "../support/counter-app.ts";

/** A state with all that can be copied, in a service beside one that no swap touches. */
const calls = `fill(state) { Object.assign(state, { map: new Map([[{ a: 1 }, new Set([1n])]]), at: new Date(5),
    bytes: new Uint8Array([1, 2]), nested: { list: [undefined, null, NaN, -0] } }); },
  slow: (state) => new Promise((resolve) => { (globalThis as any).release = () => resolve(++state.count); }),
  spoil(state, isCycle) { state.f = isCycle ? { state } : () => 1; }, repair(state) { delete state.f; },`;
const good = counter({ calls });
const two = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  import { bystander } from "./bystander.ts";
  export default defineSupervisor({ children: [
    { id: "counter", start: [counter, 0] }, { id: "bystander", start: [bystander] } ] });`;
const bystander = `import { defineService } from "@atoll/live/app";
  export const bystander = defineService({ init: () => ({ n: 0 }), call: {
    next: (state) => ++state.n, release: () => (globalThis as any).release() } });`;

let app: TestApp;
let asked = 0;
beforeAll(async () => {
  app = await startCounter(
    { "src/app.ts": two, "src/counter.ts": good, "src/bystander.ts": bystander },
    { probationMs: 0, migrateTimeoutMs: 300, suspendTimeoutMs: 300 },
  );
  await app.call("counter", "add", 5);
  await app.call("counter", "fill");
});
afterAll(() => app.stop());

const migrating = (codeChange: string): string => counter({ version: 2, calls, more: `codeChange: ${codeChange},` });
const child = (init: string): string => `import { defineService } from "@atoll/live/app";
  export const late = defineService({ init: ${init} });
  ${two.replace("] });", `, { id: "late", start: [late] } ] });`)}`;

interface Failure {
  sources: Record<string, string>;
  phase: string;
  code?: string;
}
const bad = (source: string, phase: string, code?: string): Failure => ({
  sources: { "src/counter.ts": source },
  phase,
  ...(code === undefined ? {} : { code }),
});
const entry = (source: string, code: string): Failure => ({ sources: { "src/app.ts": source }, phase: "commit", code });

const failures: Record<string, Failure> = {
  "a syntax error": bad(`${good} const = 1;`, "compile"),
  "a missing export": bad(`import { none } from "./app.ts"; ${good} none();`, "compile"),
  "a missing module": bad(`import "./none.ts"; ${good}`, "compile"),
  "a source that brings the compiler down": bad(`${good} ${"(".repeat(200_000)}`, "compile"),
  "a throw while it is loaded": bad(`${good} throw new Error("no");`, "prepare", "load_failed"),
  "a rejection while it is loaded": bad(`${good} await Promise.reject(new Error("no"));`, "prepare", "load_failed"),
  "an endless loop while it is loaded": bad(`${good} for (;;);`, "prepare", "load_failed"),
  "an await without end": bad(`${good} await new Promise(() => {});`, "prepare", "load_failed"),
  "a cycle that needs a value too early": {
    sources: {
      "src/counter.ts": `import { early } from "./early.ts"; export const late = early + 1; ${good}`,
      "src/early.ts": `import { late } from "./counter.ts"; export const early = late + 1;`,
    },
    phase: "prepare",
    code: "load_failed",
  },
  "a migration that throws": bad(migrating("() => { throw new Error('no'); }"), "commit", "migration_failed"),
  "a migration without end": bad(migrating("() => { for (;;); }"), "commit", "migration_failed"),
  "a migration that returns a promise": bad(migrating("async (old, state) => state"), "commit", "invalid_state"),
  "a migration to a state that cannot be copied": bad(migrating("() => ({ f() {} })"), "commit", "invalid_state"),
  "a state that its schema refuses": bad(
    counter({ version: 2, calls, more: `schema: { fields: { count: { type: "string" } } },` }),
    "commit",
    "invalid_state",
  ),
  "an entry that is no supervisor": {
    sources: { "src/app.ts": "export default 1;" },
    phase: "prepare",
    code: "load_failed",
  },
  "a service that throws in `init`": entry(child("() => { throw new Error('no'); }"), "start_failed"),
  "a service that rejects in `init`": entry(child("() => Promise.reject(new Error('no'))"), "start_failed"),
  "a service that loops in `init`": entry(child("() => { for (;;); }"), "start_failed"),
  "a child that is replaced by one that cannot start": entry(
    `import { defineService, defineSupervisor } from "@atoll/live/app"; import { bystander } from "./bystander.ts";
    export const late = defineService({ init: () => { throw new Error("no"); } });
    export default defineSupervisor({ children: [
      { id: "bystander", start: [bystander] }, { id: "counter", start: [late] } ] });`,
    "start_failed",
  ),
};

test.for(Object.entries(failures))("%s leaves code and state exactly as they were", async ([, failure]) => {
  const before = await app.call("counter", "state");
  const { generation, restarts } = app.info;
  const error = await app.reload(failure.sources).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    phase: failure.phase,
    ...(failure.code === undefined ? {} : { details: { failure: failure.code } }),
  });
  expect(app.events.findLast(({ type }) => type === "reload.failed")).toMatchObject({ phase: failure.phase });
  expect(await app.call("counter", "state")).toEqual(before);
  expect(await app.call("bystander", "next")).toBe(++asked);
  expect(app.info).toMatchObject({ state: "running", generation, restarts });
  for (const path of Object.keys(failure.sources)) {
    await app.write(path, { "src/app.ts": two, "src/counter.ts": good }[path] ?? "");
  }
  expect(await app.reload()).toMatchObject({ services: [] });
});

test("new code that ends the process while it is loaded is left, with the state of that moment", async () => {
  const before = await app.call("counter", "state");
  const { generation, restarts } = app.info;
  await expect(app.reload({ "src/counter.ts": `${good} process.abort();` })).rejects.toMatchObject({
    phase: "prepare",
  });
  expect(app.info).toMatchObject({ state: "running", generation, restarts: restarts + 1 });
  expect(await app.call("counter", "state")).toEqual(before);
  expect(await app.call("bystander", "next")).toBe(++asked);
  await app.reload({ "src/counter.ts": good });
});

test("a service that does not come to the end of a message in time is not reloaded, and finishes it", async () => {
  const { count } = (await app.call("counter", "state")) as { count: number };
  const slow = app.call("counter", "slow");
  await expect(app.reload({ "src/counter.ts": `${good} //` })).rejects.toMatchObject({
    phase: "suspend",
    details: { failure: "suspend_timeout" },
  });
  await app.call("bystander", "release");
  expect(await slow).toBe(count + 1);
});

test.for([
  ["a function", false, "f"],
  ["a cycle", true, "f.state"],
] as const)("a state with %s is not reloaded, and its path is named", async ([, isCycle, path]) => {
  await app.call("counter", "spoil", isCycle);
  await expect(app.reload({ "src/counter.ts": `${good} export {};` })).rejects.toMatchObject({
    phase: "suspend",
    message: expect.stringMatching(new RegExp(`counter.*\\b${path}\\b`)),
    details: { failure: "uncloneable_state" },
  });
  await app.call("counter", "repair");
  expect(await app.reload()).toMatchObject({ result: "reloaded", services: ["counter"] });
  await app.reload({ "src/counter.ts": good });
});

test("modules in a cycle are reloaded together, and migrations by schema fill in, change and drop fields", async () => {
  await app.reload({
    "src/counter.ts": `import { other } from "./other.ts"; export const factor = () => 2; ${counter({
      version: 2,
      add: "state.count += by * other();",
      more: `schema: { fields: { count: { type: "number", transform: (count: number) => count * 100 },
        list: { type: "array", default: [1] }, note: { type: "string", optional: true } } },`,
    })}`,
    "src/other.ts": `import { factor } from "./counter.ts"; export const other = () => factor() * 5;`,
  });
  const { count } = (await app.call("counter", "state")) as { count: number };
  expect(await app.call("counter", "state")).toEqual({ count, list: [1] });
  expect(count % 100).toBe(0);
  expect(await app.call("counter", "add", 1)).toBe(count + 10);
});

test("services that a new supervision tree ended are there again after a crash of it, with their states", async () => {
  await using tree = await startCounter({}, { probationMs: 600_000 });
  await tree.call("counter", "add", 7);
  const went = tree.waitFor("rollback");
  await tree.reload({
    "src/app.ts": `import { defineService, defineSupervisor } from "@atoll/live/app";
      export const other = defineService({ init: () => ({}), call: { die() { throw new Error("no"); } } });
      export default defineSupervisor({ maxRestarts: 0, children: [{ id: "other", start: [other] }] });`,
  });
  await expect(tree.call("counter", "state")).rejects.toMatchObject({ code: "not_found" });
  await expect(tree.call("other", "die")).rejects.toMatchObject({ code: "handler_failed" });
  expect(await went).toMatchObject({ from: 2, to: 1 });
  expect(await tree.call("counter", "add", 1)).toBe(8);
  expect(tree.info.restarts).toBe(0);
});
