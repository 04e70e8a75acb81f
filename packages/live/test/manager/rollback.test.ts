import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { LiveEvent } from "../../src/events/live-event.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";

const main = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  export default defineSupervisor({ children: [{ id: "counter", start: [counter] }] });`;
const counter = (version: number, more = "") => `import { defineService } from "@atoll/live/app";
  import { factor } from "./factor.ts";
  export const counter = defineService({
    version: ${version}, init: (): Record<string, number> => ({ count: 0, v${version}: 1 }),
    codeChange: (old, state: Record<string, number>) => ({ ...state, ["from" + old]: ${version} }),
    call: { add: (state, by: number) => (state["count"] = (state["count"] ?? 0) + by * factor), state: (state) => state,
      ${more} } });`;
const factor = (value: number) => `export const factor = ${value};`;

class TestApp implements AsyncDisposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-rollback-"));
  readonly stateDir = mkdtempSync(join(tmpdir(), "atoll-rollback-state-"));
  manager = this.newManager();
  events: LiveEvent[] = [];

  constructor() {
    this.write("package.json", "{}");
    this.write("app.ts", main);
    this.write("counter.ts", counter(1));
    this.write("factor.ts", factor(1));
  }

  newManager(): LiveManager {
    const manager = new LiveManager({ hosts: [new ProcessHost()], stateDir: this.stateDir });
    manager.onEvent((event) => this.events.push(event));
    return manager;
  }

  create(options: object = {}) {
    return this.manager.create("app", this.path, { entry: "app.ts", typeCheck: "off", probationMs: 0, ...options });
  }

  write(path: string, content: string): void {
    writeFileSync(join(this.path, path), content);
  }

  call(name: string, argument?: unknown): Promise<unknown> {
    return this.manager.call("app", "counter", name, argument);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.manager[Symbol.asyncDispose]();
    for (const path of [this.path, this.stateDir]) rmSync(path, { recursive: true, force: true });
  }
}

test("a rollback to a generation keeps the state, migrates it down, and is current at once", async () => {
  await using app = new TestApp();
  await app.create();
  await app.call("add", 5);
  app.write("counter.ts", counter(2));
  app.write("factor.ts", factor(10));
  expect(await app.manager.hotReload("app")).toMatchObject({ generation: 2 });
  await app.call("add", 1);
  expect(await app.manager.rollback("app", { generation: 1 })).toMatchObject({
    result: "reloaded",
    generation: 1,
    modules: ["counter.ts", "factor.ts"],
  });
  expect(app.manager.currentVersion("app", "counter.ts")).toBe(1);
  expect(app.manager.get("app").generation).toBe(1);
  expect(await app.call("add", 1)).toBe(16);
  expect(await app.call("state")).toMatchObject({ count: 16, v1: 1, from1: 2, from2: 1 });
  expect(app.events.findLast(({ type }) => type === "rollback")).toMatchObject({ from: 2, to: 1, reason: "requested" });
  await expect(app.manager.rollback("app", { generation: 7 })).rejects.toMatchObject({ code: "not_found" });
});

test("a rollback of one module leaves the others, also when another file is edited", async () => {
  await using app = new TestApp();
  await app.create({ autoReload: true });
  app.write("factor.ts", factor(10));
  await expect.poll(() => app.manager.currentVersion("app", "factor.ts")).toBe(2);
  await app.manager.rollback("app", { module: "factor.ts", version: 1 });
  expect(await app.call("add", 1)).toBe(1);
  app.write("counter.ts", counter(1, "edited: () => true,"));
  await expect.poll(() => app.call("edited").catch(() => false)).toBe(true);
  expect(app.manager.currentVersion("app", "factor.ts")).toBe(1);
  expect(await app.call("add", 1)).toBe(2);
  app.write("factor.ts", factor(100));
  await expect.poll(() => app.manager.currentVersion("app", "factor.ts")).toBe(3);
  expect(await app.call("add", 1)).toBe(102);
});

test("a rollback to a version that others cannot be bound to is refused, and nothing changes", async () => {
  await using app = new TestApp();
  app.write("factor.ts", "export const other = 1;");
  app.write("counter.ts", counter(1).replace("{ factor }", "{ other as factor }"));
  await app.create();
  app.write("factor.ts", factor(2));
  app.write("counter.ts", counter(1));
  await app.manager.hotReload("app");
  await expect(app.manager.rollback("app", { module: "factor.ts", version: 1 })).rejects.toThrow(
    'factor.ts does not export "factor"',
  );
  expect(app.manager.get("app")).toMatchObject({ state: "running", generation: 2 });
  expect(await app.call("add", 1)).toBe(2);
});

test("generations survive the manager", async () => {
  await using app = new TestApp();
  await app.create();
  app.write("factor.ts", factor(10));
  await app.manager.hotReload("app");
  await app.manager[Symbol.asyncDispose]();
  app.manager = app.newManager();
  expect(await app.create()).toMatchObject({ generation: 2 });
  expect(app.manager.listVersions("app")).toMatchObject([
    { number: 2, isCurrent: true, changed: ["factor.ts"], cause: "request" },
    { number: 1, isCurrent: false, cause: "start" },
  ]);
  await app.manager.rollback("app", { generation: 1 });
  expect(await app.call("add", 1)).toBe(1);
  expect(await app.manager.diff("app", { from: 1, to: 2 })).toMatchObject([
    { module: "factor.ts", patch: expect.stringContaining("+export const factor = 10;") },
  ]);
  await app.manager.destroy("app");
  expect(await app.create()).toMatchObject({ generation: 1 });
});

test("a generation that crashed in its probation is marked, and the one before is current", async () => {
  await using app = new TestApp();
  await app.create({ probationMs: 60_000 });
  await app.call("add", 5);
  app.write("counter.ts", counter(1).replace("add: (", "add: () => { throw new Error('broken'); }, old: ("));
  await app.manager.hotReload("app");
  await expect(app.call("add", 1)).rejects.toThrow("broken");
  await expect.poll(() => app.manager.get("app").generation).toBe(1);
  expect(app.manager.listVersions("app")).toMatchObject([
    { number: 2, isGood: false, isCurrent: false, failure: expect.stringContaining("broken") },
    { number: 1, isCurrent: true },
  ]);
  expect(await app.call("add", 1)).toBe(6);
});
