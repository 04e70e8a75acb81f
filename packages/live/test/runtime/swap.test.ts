import { expect, test } from "vitest";
import { Runtime } from "../../src/runtime/runtime.ts";
import { decode, encode } from "../../src/wire/encode.ts";
import type { Params, Reply, RequestName } from "../../src/wire/protocol.ts";
import { handMade } from "../support/hand-made.ts";

class TestApp {
  readonly events: unknown[] = [];
  readonly #runtime = new Runtime("file:///app/", (event) => this.events.push(event));
  #n = 0;

  async ask<N extends RequestName>(name: N, params: Params<N>): Promise<Reply<N>> {
    const answer = await this.#runtime.answer(++this.#n, name, params);
    if (answer.t === "error") throw Object.assign(new Error(answer.error.message), answer.error);
    return answer.ok as Reply<N>;
  }

  async call(service: string, name: string, argument?: unknown): Promise<unknown> {
    const params = { service, name, argument: encode(argument), timeoutMs: 5_000 };
    return decode((await this.ask("call", params)).value);
  }

  async swap(generation: number, ...artifacts: ReturnType<typeof handMade>[]): Promise<Reply<"commit">> {
    await this.ask("prepare", { generation, artifacts, evaluate: artifacts.map(({ module }) => module), removed: [] });
    await this.ask("capture", { generation, suspendTimeoutMs: 1_000 });
    return this.ask("commit", { generation, extra: encode(undefined), migrateTimeoutMs: 200 });
  }
}

const live = "@atoll/live/app";
const counter = (body: string) =>
  handMade("src/counter.ts", {
    imports: [live],
    exports: ["default"],
    body: `const $default = $import[0].current.defineService({ ${body} });`,
  });
const root = handMade("src/app.ts", {
  imports: [live, "src/counter.ts"],
  exports: ["default"],
  body: `const $default = $import[0].current.defineSupervisor({ children: [
    { id: "counter", start: [$import[1].current.default, { initial: 5 }] } ] });`,
});
const first = `init: ({ initial }) => ({ count: initial }),
  call: { add(state, by) { state.count += by; return state.count; }, crash() { throw new Error("on purpose"); },
          read: (state) => ({ ...state }) }`;

async function startedApp(): Promise<TestApp> {
  const app = new TestApp();
  await app.ask("load", { generation: 1, entry: "src/app.ts", artifacts: [counter(first), root] });
  await app.ask("start", { snapshots: [] });
  return app;
}

test("a service keeps its state when its code changes", async () => {
  const app = await startedApp();
  expect(await app.call("counter", "add", 2)).toBe(7);
  await app.swap(2, counter(first.replace("state.count += by", "state.count += by * 100")));
  expect(await app.call("counter", "add", 1)).toBe(107);
});

test("a state of an older version is migrated, and is exactly as before after a revert", async () => {
  const app = await startedApp();
  await app.call("counter", "add", 2);
  const { migrated } = await app.swap(
    2,
    counter(
      `version: 2, ${first}, codeChange: (old, state) => ({ ...state, from: old,
        history: new Map([[1, state.count]]) })`,
    ),
  );
  expect(migrated).toEqual(["counter"]);
  expect(await app.call("counter", "read")).toEqual({ count: 7, from: 1, history: new Map([[1, 7]]) });
  await app.call("counter", "add", 1);
  await app.ask("revert", { generation: 2 });
  expect(await app.call("counter", "read")).toEqual({ count: 7 });
});

test.for([
  ["throws", "() => { throw new Error('no'); }", "migration_failed"],
  ["never returns", "() => { for (;;); }", "migration_failed"],
  ["returns a promise", "async (old, state) => state", "invalid_state"],
  ["returns a function in the state", "() => ({ f() {} })", "invalid_state"],
  ["returns no object", "() => 5", "invalid_state"],
] as const)("a migration that %s leaves code and state as they were", async ([, codeChange, code]) => {
  const app = await startedApp();
  await app.call("counter", "add", 2);
  await expect(app.swap(2, counter(`version: 2, ${first}, codeChange: ${codeChange}`))).rejects.toMatchObject({ code });
  expect(await app.call("counter", "add", 1)).toBe(8);
});

test("a module whose evaluation throws is never seen by what runs", async () => {
  const app = await startedApp();
  const body = "const $default = 1; throw new Error('no');";
  const broken = handMade("src/counter.ts", { exports: ["default"], body });
  await expect(app.swap(2, broken)).rejects.toMatchObject({ code: "load_failed" });
  expect(await app.call("counter", "add", 1)).toBe(6);
});

test("a crash is reported, and the service begins with its first state", async () => {
  const app = await startedApp();
  await app.call("counter", "add", 2);
  await expect(app.call("counter", "crash")).rejects.toMatchObject({ code: "handler_failed", message: "on purpose" });
  await expect.poll(() => app.events).toContainEqual({ t: "started", service: "counter" });
  expect(app.events).toContainEqual(expect.objectContaining({ t: "crash", service: "counter", restarts: 1 }));
  await expect.poll(() => app.call("counter", "add", 1).catch(() => undefined)).toBe(6);
});

test("a changed supervisor is applied child by child", async () => {
  const app = await startedApp();
  await app.call("counter", "add", 2);
  const two = handMade("src/app.ts", {
    imports: [live, "src/counter.ts"],
    exports: ["default"],
    body: `const $default = $import[0].current.defineSupervisor({ children: [
      { id: "counter", start: [$import[1].current.default, { initial: 5 }] },
      { id: "second", start: [$import[1].current.default, { initial: 50 }] } ] });`,
  });
  expect(await app.swap(2, two)).toMatchObject({ started: ["second"], stopped: [] });
  expect(await app.call("counter", "add", 1)).toBe(8);
  expect(await app.call("second", "add", 1)).toBe(51);
  expect(await app.swap(3, root)).toMatchObject({ started: [], stopped: ["second"] });
});
