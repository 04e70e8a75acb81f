import { appendFile, mkdir, mkdtemp, readFile, realpath, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { buildBundle, programNames } from "../../tools/bundles/build-bundle.mjs";
import { freshBundle, manifestPath } from "../../tools/bundles/fresh-bundle.mjs";

let checkout: string;
const at = (path: string) => join(checkout, path);

async function put(path: string, text: string): Promise<void> {
  await mkdir(join(at(path), ".."), { recursive: true });
  await writeFile(at(path), text);
}

/** Runs the program from its bundle and returns what it prints. */
async function runBundle(): Promise<string> {
  const entry = freshBundle("cli", checkout);
  if (entry === undefined) return "from source";
  const { main } = (await import(/* @vite-ignore */ pathToFileURL(entry).href)) as { main: () => string };
  return main();
}

beforeEach(async () => {
  checkout = await realpath(await mkdtemp(join(tmpdir(), "atoll-bundles-")));
  await put("tsconfig.json", "{}");
  await put("node_modules/.package-lock.json", "{}");
  await put("tools/bundles/build-bundle.mjs", "");
  await put("packages/cli/package.json", "{}");
  await put("packages/cli/src/word.ts", 'export const word: string = "one";');
  await put("packages/cli/src/main.ts", 'import { word } from "./word.ts"; export const main = () => word;');
  await buildBundle("cli", checkout);
});
afterEach(async () => {
  await rm(checkout, { recursive: true, force: true });
});

describe("a bundle", () => {
  test("is used while its sources are unchanged", async () => {
    expect(await runBundle()).toBe("one");
  });

  test("is used after sources were rewritten with the same content", async () => {
    await writeFile(at("packages/cli/src/word.ts"), await readFile(at("packages/cli/src/word.ts")));
    await utimes(at("packages/cli/src/main.ts"), 1, 1);
    expect(await runBundle()).toBe("one");
  });

  test.for([
    ["packages/cli/src/word.ts", 'export const word: string = "two";'],
    ["packages/cli/package.json", '{ "version": "2" }'],
    ["tsconfig.json", '{ "extends": "./other.json" }'],
    ["node_modules/.package-lock.json", '{ "packages": {} }'],
  ] as const)("is not used after a change of %s", async ([path, text]) => {
    await writeFile(at(path), text);
    expect(await runBundle()).toBe("from source");
  });

  test("is not used after a change that keeps the size and the time", async () => {
    const path = at("packages/cli/src/word.ts");
    const { inputs } = JSON.parse(await readFile(manifestPath("cli", checkout), "utf8"));
    await writeFile(path, 'export const word: string = "two";');
    await utimes(path, 0, inputs["packages/cli/src/word.ts"][1] / 1_000);
    expect(await runBundle()).toBe("from source");
  });

  test.for(["packages/cli/src/word.ts", ".cache/bundles/cli.json"])("is not used without %s", async (path) => {
    await rm(at(path));
    expect(await runBundle()).toBe("from source");
  });

  test("is not used when its manifest is truncated", async () => {
    const path = manifestPath("cli", checkout);
    await writeFile(path, (await readFile(path, "utf8")).slice(0, -10));
    expect(await runBundle()).toBe("from source");
  });

  test("is built again from changed sources", async () => {
    await put("packages/cli/src/word.ts", 'export const word: string = "three";');
    await buildBundle("cli", checkout);
    expect(await runBundle()).toBe("three");
  });

  test("gives each source its own import.meta.url, not the bundle's", async () => {
    await put("packages/cli/src/main.ts", "export const main = () => import.meta.url;");
    await buildBundle("cli", checkout);
    expect(await runBundle()).toBe(pathToFileURL(at("packages/cli/src/main.ts")).href);
  });

  test("uses a native package from where it is, also one of a single workspace", async () => {
    const native = "packages/cli/node_modules/oxc-parser";
    await put(`${native}/package.json`, '{ "name": "oxc-parser", "type": "module", "exports": "./index.js" }');
    await put(`${native}/index.js`, "export const here = import.meta.url;");
    await put("packages/cli/src/main.ts", 'import { here } from "oxc-parser"; export const main = () => here;');
    await buildBundle("cli", checkout);
    expect(await runBundle()).toBe(pathToFileURL(at(`${native}/index.js`)).href);
  });

  test("that cannot be built leaves the sources in use", async () => {
    await appendFile(at("packages/cli/src/main.ts"), "this is no TypeScript");
    await expect(buildBundle("cli", checkout)).rejects.toThrow("Build failed");
    expect(await runBundle()).toBe("from source");
  });
});

// Set-up goes on without a bundle that cannot be built, and then each command takes four times as long to start.
test.for(programNames)("the bundle of this checkout's %s can be built", async (name) => {
  await buildBundle(name);
  expect(freshBundle(name)).toBeDefined();
});
