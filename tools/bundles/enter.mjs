import { register } from "node:module";
import { pathToFileURL } from "node:url";
import { freshBundle } from "./fresh-bundle.mjs";

/**
 * Loads a program of this checkout: its bundle where that is of the present sources, and else the sources themselves,
 * so that nobody ever runs code that is not what they see.
 *
 * @param {import("./fresh-bundle.mjs").ProgramName} name
 * @returns {Promise<any>} what its `main` exports
 */
export async function enter(name) {
  const bundle = freshBundle(name);
  if (bundle !== undefined) return import(pathToFileURL(bundle).href);
  // Packages are entered by their `source` condition, and tsx reads TypeScript.
  const { register: registerTsx } = await import("tsx/esm/api");
  registerTsx();
  register("./source-condition.mjs", import.meta.url);
  return import(new URL(`../../packages/${name}/src/main.ts`, import.meta.url).href);
}
