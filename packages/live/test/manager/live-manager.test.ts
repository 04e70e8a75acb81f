import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import type { LiveEvent } from "../../src/events/live-event.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { LiveManager } from "../../src/manager/live-manager.ts";

const app = `import { defineSupervisor } from "@atoll/live/app"; import { counter } from "./counter.ts";
  export default defineSupervisor({ children: [{ id: "counter", start: [counter, { initial: 0 }] }] });`;
const counter = (add = "state.count += by;", more = "") => `import { defineService } from "@atoll/live/app";
  export const counter = defineService({
    init: (argument: { initial: number }): { count: number } => ({ count: argument.initial }),
    call: { add(state, by: number) { ${add} return state.count; } ${more} } });`;

class TestFolder implements AsyncDisposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-live-"));
  readonly events: LiveEvent[] = [];
  readonly stateDir = mkdtempSync(join(tmpdir(), "atoll-live-state-"));
  readonly manager = new LiveManager({ hosts: [new ProcessHost()], stateDir: this.stateDir });

  constructor(files: Readonly<Record<string, string>> = { "src/app.ts": app, "src/counter.ts": counter() }) {
    for (const [path, content] of Object.entries(files)) this.write(path, content);
    this.write("live.json", `{ "typeCheck": "off" }`);
    this.manager.onEvent((event) => this.events.push(event));
  }

  write(path: string, content: string): void {
    mkdirSync(dirname(join(this.path, path)), { recursive: true });
    writeFileSync(join(this.path, path), content);
  }

  add(by: number): Promise<unknown> {
    return this.manager.call("app", "counter", "add", by);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.manager[Symbol.asyncDispose]();
    for (const path of [this.path, this.stateDir]) rmSync(path, { recursive: true, force: true });
  }
}

test("an edit of a running app keeps its state", async () => {
  await using folder = new TestFolder();
  expect(await folder.manager.create("app", folder.path)).toMatchObject({ state: "running", generation: 1 });
  expect(await folder.add(5)).toBe(5);
  folder.write("src/counter.ts", counter("state.count += by * 10;"));
  expect(await folder.manager.hotReload("app")).toMatchObject({
    result: "reloaded",
    generation: 2,
    modules: ["src/counter.ts"],
    services: ["counter"],
  });
  expect(await folder.add(1)).toBe(15);
  expect(await folder.manager.hotReload("app")).toMatchObject({ result: "no_change", generation: 2 });
});

test("code that does not compile leaves the app as it is, and says where the mistake is", async () => {
  await using folder = new TestFolder();
  await folder.manager.create("app", folder.path);
  await folder.add(5);
  folder.write("src/counter.ts", counter("state.count += ;"));
  await expect(folder.manager.hotReload("app")).rejects.toMatchObject({
    phase: "compile",
    diagnostics: [{ file: "src/counter.ts", line: 4, severity: "error", kind: "syntax" }],
  });
  expect(await folder.add(1)).toBe(6);
  expect(folder.manager.get("app")).toMatchObject({ state: "running", generation: 1 });
});

test("new code that crashes in its probation goes back to the old code and state", async () => {
  await using folder = new TestFolder();
  await folder.manager.create("app", folder.path);
  await folder.add(5);
  folder.write("src/counter.ts", counter("throw new Error('broken');"));
  await folder.manager.hotReload("app");
  await expect(folder.add(1)).rejects.toThrow("broken");
  await expect.poll(() => folder.events.find(({ type }) => type === "rollback")).toMatchObject({ from: 2, to: 1 });
  expect(await folder.add(1)).toBe(6);
});

test("a process that dies is started again with the states of the last snapshot", async () => {
  await using folder = new TestFolder({
    "src/app.ts": app,
    "src/counter.ts": counter(undefined, ", die() { process.abort(); }"),
  });
  await folder.manager.create("app", folder.path);
  await folder.add(5);
  await folder.manager.restart("app");
  expect(await folder.add(1)).toBe(6);
  await expect(folder.manager.call("app", "counter", "die")).rejects.toThrow("ended");
  await expect.poll(() => folder.manager.get("app")).toMatchObject({ state: "running", restarts: 2 });
  expect(await folder.add(1)).toBe(6);
});

test("an app that blocks is ended and started again, and others do not notice", async () => {
  await using folder = new TestFolder({
    "src/app.ts": app,
    "src/counter.ts": counter(undefined, ", hang() { for (;;); }"),
  });
  await folder.manager.create("app", folder.path, { limits: { unresponsiveMs: 2_000 } });
  await folder.manager.create("other", folder.path);
  const hung = folder.manager.call("app", "counter", "hang");
  expect(await folder.manager.call("other", "counter", "add", 1)).toBe(1);
  await expect(hung).rejects.toMatchObject({ code: "sandbox_ended" });
  await expect.poll(() => folder.manager.get("app")).toMatchObject({ state: "running", restarts: 1 });
  expect(await folder.add(1)).toBe(1);
});

test("an app that cannot start stays in error with its reason, and starts when its code is repaired", async () => {
  await using folder = new TestFolder({ "src/app.ts": app, "src/counter.ts": "export const counter = 5;" });
  await expect(folder.manager.create("app", folder.path)).rejects.toThrow("Cannot start counter");
  expect(folder.manager.get("app")).toMatchObject({ state: "error", reason: expect.stringContaining("Cannot start") });
  folder.write("src/counter.ts", counter());
  await folder.manager.hotReload("app");
  expect(await folder.add(1)).toBe(1);
});

test("files that change are reloaded by themselves, and the last content always wins", async () => {
  await using folder = new TestFolder();
  await folder.manager.create("app", folder.path, { autoReload: true });
  await folder.add(5);
  const write = (factor: number): void =>
    folder.write("src/counter.ts", counter(`state.count += by * ${factor};`, `, factor: () => ${factor}`));
  const factor = () => folder.manager.call("app", "counter", "factor").catch(() => undefined);
  for (const next of [2, 3, 4]) {
    folder.write("src/counter.ts", counter("state.count += ;"));
    write(next);
  }
  await expect.poll(factor).toBe(4);
  expect(await folder.add(1)).toBe(9);
  folder.write("src/counter.ts", counter("state.count += ;"));
  await expect.poll(() => folder.events.find(({ type }) => type === "reload.failed")).toBeDefined();
  write(100);
  await expect.poll(factor).toBe(100);
  expect(await folder.add(1)).toBe(109);
});
