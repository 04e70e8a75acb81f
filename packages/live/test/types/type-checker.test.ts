import { expect, test } from "vitest";
import { ProcessHost } from "../../src/isolation/process-host.ts";
import { startTestApp } from "../../src/testing/index.ts";
import { counter, root } from "../support/counter-app.ts";

const wrong = counter({ calls: "wrong(state): number { return 'text'; }," });

const start = (typeCheck: "gate" | "warn" | "off", source: string) =>
  startTestApp(
    { "src/app.ts": root, "src/counter.ts": source },
    { config: { typeCheck }, manager: { hosts: [new ProcessHost()] }, isStopped: true },
  );

test("with `warn` code runs at once, and its type errors are reported and kept with the version", async () => {
  await using app = await start("warn", counter());
  const clean = app.waitFor("types.end");
  await app.start();
  expect(await clean).toMatchObject({ ok: true, generation: 1, diagnostics: [] });
  const checked = app.waitFor("types.end");
  await app.reload({ "src/counter.ts": wrong });
  expect(await app.call("counter", "wrong")).toBe("text");
  const [diagnostic] = (await checked).diagnostics;
  expect(diagnostic).toMatchObject({
    file: "src/counter.ts",
    line: 4,
    severity: "error",
    kind: "type",
    code: "TS2322",
    message: expect.stringContaining("not assignable"),
    frame: expect.stringContaining("> 4 |"),
  });
  expect(app.manager.listVersions(app.id)).toMatchObject([
    { number: 2, diagnostics: [diagnostic] },
    { number: 1, diagnostics: [] },
  ]);
});

test("with `gate` code with type errors is never used, also when it is not in the files", async () => {
  await using app = await start("gate", wrong);
  await expect(app.start()).rejects.toMatchObject({
    code: "compile_failed",
    diagnostics: [{ file: "src/counter.ts", kind: "type" }],
  });
  expect(app.info).toMatchObject({ state: "error", reason: expect.stringContaining("src/counter.ts:4:") });
  await app.reload({ "src/counter.ts": counter() });
  await app.call("counter", "add", 1);
  const sources = new Map([["src/counter.ts", wrong]]);
  await expect(app.manager.hotReload(app.id, { sources })).rejects.toMatchObject({ phase: "compile" });
  expect(await app.call("counter", "add", 1)).toBe(2);
  expect(app.info.generation).toBe(1);
});
