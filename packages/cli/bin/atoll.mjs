#!/usr/bin/env node
import { existsSync } from "node:fs";
import { register } from "node:module";

const built = new URL("../dist/main.js", import.meta.url);

if (!existsSync(built)) {
  // A checkout runs from its sources: packages are entered by their `source` condition, and tsx reads TypeScript.
  const { register: registerTsx } = await import("tsx/esm/api");
  registerTsx();
  register("./source-condition.mjs", import.meta.url);
}

const { main } = await import(existsSync(built) ? built.href : new URL("../src/main.ts", import.meta.url).href);
await main(process.argv.slice(2));
