import { expect, test } from "vitest";
import { scanModule } from "../../src/scan/scan-module.ts";

const found = (source: string): string[] =>
  scanModule("src/a.ts", source).map(({ line, column, severity, rule }) => `${line}:${column} ${severity} ${rule}`);

test.for<[source: string, ...found: string[]]>([
  [`eval("1")`, "1:1 high dynamic_code"],
  [`(0, eval)("1")`, "1:5 high dynamic_code"],
  [`const e = (eval as any); e("1")`, "1:12 high dynamic_code", "1:26 high dynamic_code"],
  [`\\u0065val("1")`, "1:1 high dynamic_code"],
  [`\n  globalThis["ev" + "al"]("1")`, "2:3 high dynamic_code"],
  [`new Function("return process")()`, "1:1 high dynamic_code"],
  [`setTimeout("work()", 1)`, "1:1 high dynamic_code"],
  [`const f = () => 1; f["constructor"]["constructor"]("x")()`, "1:20 high prototype_escape"],
  [`(() => 1)[["con", "structor"].join("")]("return 1")`, "1:1 high prototype_escape"],
  [`"".constructor.constructor("x")`, "1:1 high prototype_escape"],
  [
    `const { constructor: { constructor: F } } = {}; F("x")`,
    "1:9 high prototype_escape",
    "1:24 medium prototype_escape",
  ],
  [`const g = Object.getPrototypeOf(async function () {}).constructor`, "1:11 high prototype_escape"],
  [`({}).__proto__.polluted = 1`, "1:1 medium prototype_escape"],
  [`Array.prototype.map = () => []`, "1:1 high prototype_escape"],
  [`import { spawn } from "node:child_process"`, "1:1 high start_process"],
  [`import * as fs from "fs/promises"`, "1:1 medium file_access"],
  [`await import("node:" + "net")`, "1:7 medium network_access"],
  [`export const load = (name: string) => import(name)`, "1:39 medium dynamic_code"],
  [`process.getBuiltinModule("child_process")`, "1:1 high start_process"],
  [
    `import { createRequire } from "node:module"; const require = createRequire(import.meta.url); require("vm")`,
    "1:1 medium module_loading",
    "1:94 high dynamic_code",
  ],
  [`import p from "node:process"; p.binding("fs")`, "1:31 critical native_code"],
  [`const { dlopen, env } = process`, "1:9 critical native_code", "1:17 low environment"],
  [`import addon from "./build/x.node"`, "1:1 critical native_code"],
  [`globalThis[name]`, "1:1 medium computed_access"],
  [`new Worker("x"); export {}`],
  [`import { Worker } from "worker_threads"`, "1:1 high threads"],
  [`fetch("https://example.org")`, "1:1 medium network_access"],
  [`for (;;) { work() }`, "1:1 medium endless_loop"],
  [`while (true) { while (1) break; }`, "1:1 medium endless_loop"],
  [`/^(a+)+$/.test(text)`, "1:1 medium slow_expression"],
  [`/[(](?:\\w*)*\\)/.test(text)`, "1:1 medium slow_expression"],
  [`/^(a+)+b/.test(text)`, "1:1 medium slow_expression"],
  [`const x = ;`, "1:11 high syntax_error"],
])("%s", ([source, ...expected]) => expect(found(source)).toEqual(expected));

test.for([
  `const evaluate = { eval: 1 }; evaluate.eval; class A { eval() {} }`,
  `function f(process: { kill(): void }) { process.kill() }`,
  `import type { Stats } from "node:fs"`,
  `import { join } from "node:path"; import { createHash } from "node:crypto"; setTimeout(() => join(), 1)`,
  `while (true) { if (await next()) continue; }`,
  `const f = () => { for (;;) { try { return step() } catch {} } }`,
  `outer: while (true) { for (;;) break outer }`,
  `const o = { __proto__: null }; new this.constructor(); x instanceof Function; let f: Function`,
  `/(a+b)+c/; /(a+)+/; /(\\d+)?x/; /[(a+)+]/; "(a+)+b"; // eval("1")`,
])("harmless: %s", (source) => expect(found(source)).toEqual([]));

test("every finding has a reason and a fix", () => {
  for (const { file, why, fix } of scanModule("src/a.ts", `eval(""); process.env; fetch(""); for(;;);`)) {
    expect(file).toBe("src/a.ts");
    expect(why.length).toBeGreaterThan(10);
    expect(fix).toMatch(/^[A-Z].*\.$/);
  }
});

test("a source that is too large, or full of findings, is bounded", () => {
  expect(scanModule("a.js", " ".repeat(8 * 1024 * 1024 + 1))).toMatchObject([
    { rule: "unscannable", severity: "high" },
  ]);
  expect(scanModule("a.js", "eval(1);\n".repeat(5_000)).length).toBe(200);
  const doubling = Array.from({ length: 60 }, (_, at) => `const a${at} = a${at + 1} + a${at + 1};`).join("");
  expect(scanModule("a.js", `${doubling} const a60 = "x"; globalThis[a0]`)).toMatchObject([
    { rule: "computed_access" },
  ]);
});
