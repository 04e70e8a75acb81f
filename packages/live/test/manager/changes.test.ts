import { expect, test } from "vitest";
import { compileApp } from "../../src/compiler/compile.ts";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { ReloadFailed } from "../../src/manager/reload-failed.ts";
import { startTestApp } from "../../src/testing/index.ts";
import { counter, root, startCounter } from "../support/counter-app.ts";

const times = (factor: number): string => counter({ add: `state.count += by * ${factor};` });

test("code comes from files, from sources or from artifacts, and the state stays", async () => {
  await using app = await startCounter({ "src/other.ts": "export const other = 1;" });
  const { manager, id } = app;
  await app.call("counter", "add", 1);
  await app.write("src/counter.ts", times(10));
  await app.write("src/other.ts", "export const other = ;");
  expect(await manager.hotReload(id, { files: ["src/counter.ts"] })).toMatchObject({ modules: ["src/counter.ts"] });
  expect(await app.call("counter", "add", 1)).toBe(11);

  await manager.hotReload(id, {
    sources: new Map([
      ["src/counter.ts", times(100)],
      ["src/other.ts", ""],
    ]),
  });
  expect(await app.call("counter", "add", 1)).toBe(111);

  await app.write("src/counter.ts", times(1000));
  await app.write("src/other.ts", "");
  const { artifacts } = await compileApp(app.folder);
  await manager.hotReload(id, { artifacts: artifacts.filter(({ module }) => module === "src/counter.ts") });
  expect(await app.call("counter", "add", 1)).toBe(1111);

  const forged = artifacts.map((artifact) => ({ ...artifact, code: `${artifact.code} ` }));
  await expect(manager.hotReload(id, { artifacts: forged })).rejects.toMatchObject({ code: "invalid_argument" });
  await expect(manager.hotReload(id, { files: [], artifacts: [] })).rejects.toThrow("at once");
  for (const path of ["/etc/passwd", "../x.ts", "notes.txt"])
    await expect(manager.hotReload(id, { files: [path] })).rejects.toThrow("no module of an app");
  expect(await app.call("counter", "add", 1)).toBe(2111);
});

test("a scan sees new code before it is loaded, and what it refuses is never used", async () => {
  const seen: string[][] = [];
  const finding = { line: 1, column: 1, severity: "error", kind: "scan", message: "it is secret", frame: "" } as const;
  await using app = await startTestApp(
    { "src/app.ts": root, "src/counter.ts": counter() },
    {
      config: { typeCheck: "off" },
      manager: {
        hosts: [new ProcessHost()],
        scan: async (_app, artifacts) => {
          seen.push(artifacts.map(({ module }) => module));
          return artifacts.flatMap(({ module: file, code }) => (code.includes("secret") ? [{ file, ...finding }] : []));
        },
      },
    },
  );
  await app.call("counter", "add", 1);
  const failure = await app
    .reload({ "src/counter.ts": counter({ add: "state.secret = by;" }) })
    .catch((error) => error);
  expect(failure).toBeInstanceOf(ReloadFailed);
  expect(failure).toMatchObject({ code: "compile_failed", phase: "scan", details: { kind: "security" } });
  expect(await app.call("counter", "state")).toEqual({ count: 1 });
  expect(seen.map((modules) => modules.toSorted())).toEqual([["src/app.ts", "src/counter.ts"], ["src/counter.ts"]]);
  expect(app.events.findLast(({ type }) => type === "scan.end")).toMatchObject({ ok: false });
});

test("a batch does the same for each app, and the failure of one is its own", async () => {
  await using app = await startCounter({ "src/sum.ts": "export const sum = (a: number, b: number) => a + b;" });
  const { manager, folder } = app;
  const options = { typeCheck: "off" } as const;
  const created = await manager.batchCreate([
    { id: "one", folder, options },
    { id: "two", folder: `${folder}/none`, options },
    { id: "three", folder, options },
  ]);
  expect(created).toMatchObject([
    { id: "one", ok: true, value: { state: "running" } },
    { id: "two", ok: false, error: { code: "not_found" } },
    { id: "three", ok: true },
  ]);
  const work = { module: "src/sum.ts", export: "sum", arguments: [1, 2] };
  expect(await manager.batchRun(["one", "two", "three"], work)).toMatchObject([
    { id: "one", ok: true, value: 3 },
    { id: "two", ok: false, error: { code: "not_found" } },
    { id: "three", ok: true, value: 3 },
  ]);
  await app.write("src/counter.ts", times(10));
  expect(await manager.batchHotReload(["one", "three"])).toMatchObject([{ ok: true }, { ok: true }]);
  expect(await manager.call("three", "counter", "add", 1)).toBe(10);
  expect(await manager.batchDestroy(["one", "three"])).toMatchObject([{ ok: true }, { ok: true }]);
  await expect(manager.batchRun(["one"], work, { concurrency: 0 })).rejects.toMatchObject({ code: "invalid_argument" });
});

test("`run` gives up in time, interrupts a loop, and reports what was thrown", async () => {
  const work = `export const never = () => new Promise(() => {}); export const loop = () => { for (;;); };
    export const fail = () => { throw new RangeError("too far"); };`;
  await using app = await startCounter({ "src/work.ts": work });
  const run = (name: string): Promise<unknown> => app.manager.run(app.id, { module: "src/work.ts", export: name }, 200);
  await expect(run("never")).rejects.toMatchObject({ code: "timed_out" });
  await expect(run("loop")).rejects.toMatchObject({ code: "handler_failed" });
  await expect(run("fail")).rejects.toMatchObject({ code: "handler_failed", message: "too far" });
  await expect(run("none")).rejects.toMatchObject({ code: "not_found" });
  expect(app.info).toMatchObject({ state: "running", restarts: 0 });
});
