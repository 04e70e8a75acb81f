import { register } from "node:module";
import { pathToFileURL } from "node:url";
import { freshBundle } from "./fresh-bundle.mjs";

/**
 * Loads a program of this checkout: its bundle if that was built from the present sources, otherwise the sources
 * themselves. So the code that runs is always the code in the checkout.
 *
 * @param {import("./fresh-bundle.mjs").ProgramName} name
 * @returns {Promise<any>} the exports of the program's main module
 */
export async function enter(name) {
  const bundle = freshBundle(name);
  if (bundle !== undefined) return import(pathToFileURL(bundle).href);
  // Packages resolve to their TypeScript sources by the condition `source`, and tsx loads TypeScript.
  const { register: registerTsx } = await import("tsx/esm/api");
  registerTsx();
  register("./source-condition.mjs", import.meta.url);
  return import(new URL(`../../packages/${name}/src/main.ts`, import.meta.url).href);
}
