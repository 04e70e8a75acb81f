import { expect, test } from "vitest";
import { compileModule } from "../../src/compiler/compile-module.ts";
import { ModuleGraph } from "../../src/graph/module-graph.ts";

function graphOf(sources: Readonly<Record<string, string>>): ModuleGraph {
  return new ModuleGraph(
    Object.entries(sources).flatMap(([module, source]) => compileModule(module, source).artifact ?? []),
  );
}

const diamond = {
  "app.ts": `import { left } from "./left.ts"; import { right } from "./right.ts"; export default () => [left, right];`,
  "left.ts": `import { base } from "./base.ts"; export const left = base + 1;`,
  "right.ts": `import { base } from "./base.ts"; export const right = () => base;`,
  "base.ts": `export const base = 1;`,
};

test("modules are loaded after what they import", () => {
  expect(graphOf(diamond).loadOrder("app.ts")).toEqual(["base.ts", "left.ts", "right.ts", "app.ts"]);
});

test("a change evaluates those again that used it while they were evaluated, and no others", () => {
  const graph = graphOf(diamond);
  expect(graph.reloadOrder(["base.ts"])).toEqual(["base.ts", "left.ts"]);
  expect(graph.reloadOrder(["right.ts"])).toEqual(["right.ts"]);
  expect(graph.importers("base.ts")).toEqual(["left.ts", "right.ts"]);
});

test("modules that import each other are one component", () => {
  const graph = graphOf({
    "a.ts": `import { b } from "./b.ts"; export const a = () => b;`,
    "b.ts": `import { c } from "./c.ts"; export const b = () => c;`,
    "c.ts": `import { a } from "./a.ts"; import { d } from "./d.ts"; export const c = () => [a, d];`,
    "d.ts": `export const d = 1;`,
  });
  expect(graph.components().map((component) => component.toSorted())).toEqual([["d.ts"], ["a.ts", "b.ts", "c.ts"]]);
  expect(graph.loadOrder("a.ts")).toEqual(["d.ts", "c.ts", "b.ts", "a.ts"]);
});

test("imports of what is not there are found before anything is loaded", () => {
  const graph = graphOf({
    "a.ts": `import { gone, passed } from "./b.ts"; import "./missing.ts"; import type { T } from "./types.ts";
      export const a = (t: T) => [gone, passed, t];`,
    "b.ts": `export * from "./c.ts"; export const here = 1;`,
    "c.ts": `export const passed = 1; export default 2;`,
  });
  expect(graph.problems()).toEqual([
    { importer: "a.ts", specifier: "./b.ts", message: `b.ts does not export "gone"` },
    { importer: "a.ts", specifier: "./missing.ts", message: "there is no module missing.ts" },
  ]);
});
