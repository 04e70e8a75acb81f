import { randomUUID } from "node:crypto";
import { readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { isBuiltin } from "node:module";
import { join } from "node:path";
import { repositoryRoot } from "../setup/paths.mjs";
import { bundleRoot, hashOf, manifestPath } from "./fresh-bundle.mjs";

/** @typedef {import("./fresh-bundle.mjs").ProgramName} ProgramName */
/** @typedef {import("esbuild").Plugin} Plugin */

/**
 * `hasPackages`: packages from npm are inside too. The server's stay outside: it starts once, and some of them look for
 * files beside their own.
 *
 * @type {Readonly<Record<ProgramName, { hasPackages: boolean }>>}
 */
const programs = { cli: { hasPackages: true }, server: { hasPackages: false } };

/** @type {readonly ProgramName[]} */
export const programNames = ["cli", "server"];

/** Beside the sources: what resolves their imports, and how they are put together. */
const settings = ["tsconfig.json", "node_modules/.package-lock.json", "tools/bundles/build-bundle.mjs"];

/** Somebody may still run an old one, and loads the rest of it when it is needed. */
const keptMs = 60 * 60_000;

/** Sources that change while they are read are read again. */
const attempts = 3;

const requireBanner =
  'import { createRequire as makeBundleRequire } from "node:module"; const require = makeBundleRequire(import.meta.url);';

/** Two changes within a tick of the filesystem's clock have the same time. */
const tickMs = 20;

/**
 * Makes the bundle of one program and puts it in force. Not for several processes at once.
 *
 * @param {ProgramName} name
 * @param {string} [checkout]
 */
export async function buildBundle(name, checkout = repositoryRoot) {
  for (let attempt = 0; attempt < attempts; attempt++) {
    if (await tryBuild(name, checkout)) break;
  }
  await removeOld(checkout);
}

/**
 * @param {ProgramName} name
 * @param {string} checkout
 * @returns {Promise<boolean>} false when a source changed meanwhile, so that nobody knows which one is in the bundle
 */
async function tryBuild(name, checkout) {
  const { build } = await import("esbuild");
  const directory = `${name}-${randomUUID()}`;
  const outdir = join(bundleRoot(checkout), directory);
  const { hasPackages } = programs[name];
  /** What was read, by path. @type {Map<string, string>} */
  const read = new Map();
  for (const path of settings) read.set(path, hashOf(await readFile(join(checkout, path))));
  const { metafile } = await build({
    absWorkingDir: checkout,
    entryPoints: { main: `packages/${name}/src/main.ts` },
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    // What is imported when it is needed stays out of the way until then: clients of buckets are bigger than all of
    // Atoll.
    splitting: true,
    // What the server logs of an error names the line of the source.
    sourcemap: hasPackages ? false : "linked",
    format: "esm",
    platform: "node",
    target: "node20.19",
    conditions: ["source"],
    // Packages that are not modules ask for `require`. The other name is nobody else's: what the banner declares,
    // esbuild does not see.
    ...(hasPackages ? { banner: { js: requireBanner } } : {}),
    plugins: [ourSources(checkout, read), ...(hasPackages ? [] : [packagesOutside])],
    metafile: true,
    logLevel: "silent",
  });
  const stray = Object.keys(metafile.inputs).find((path) => !path.startsWith("node_modules/") && !read.has(path));
  if (stray !== undefined) throw new Error(`${stray} is not in a package's src`);
  const inputs = await stampAll(read, checkout);
  if (inputs === undefined) {
    await rm(outdir, { recursive: true, force: true });
    return false;
  }
  const draft = `${manifestPath(name, checkout)}.${randomUUID()}`;
  await writeFile(draft, JSON.stringify({ directory, inputs }));
  await rename(draft, manifestPath(name, checkout));
  return true;
}

/**
 * @param {ReadonlyMap<string, string>} read
 * @param {string} checkout
 * @returns {Promise<import("./fresh-bundle.mjs").Manifest["inputs"] | undefined>} undefined when something is no longer
 * what was read
 */
async function stampAll(read, checkout) {
  /** @type {import("./fresh-bundle.mjs").Manifest["inputs"]} */
  const inputs = {};
  for (const [path, hash] of read) {
    const { size, mtimeMs, ctimeMs } = await stat(join(checkout, path));
    if (hashOf(await readFile(join(checkout, path))) !== hash) return undefined;
    // The next change could leave the same times behind: then the content has to be looked at.
    const isRecent = Date.now() - ctimeMs < tickMs;
    inputs[path] = isRecent ? [size, 0, 0, hash] : [size, mtimeMs, ctimeMs, hash];
  }
  return inputs;
}

/** @param {string} checkout */
async function removeOld(checkout) {
  const inForce = await Promise.all(
    programNames.map(async (name) => {
      const text = await readFile(manifestPath(name, checkout), "utf8").catch(() => "{}");
      return JSON.parse(text).directory;
    }),
  );
  for (const entry of await readdir(bundleRoot(checkout))) {
    const path = join(bundleRoot(checkout), entry);
    const { mtimeMs } = await stat(path);
    const isManifest = programNames.some((name) => path === manifestPath(name, checkout));
    if (isManifest || inForce.includes(entry) || Date.now() - mtimeMs < keptMs) continue;
    await rm(path, { recursive: true, force: true });
  }
}

/**
 * A source that looks for files beside itself finds them from the bundle too. And of zod only what is used comes along:
 * what hangs on the name `z` cannot be told from what is used of it, unless the name is that of the module itself.
 *
 * @param {string} checkout
 * @param {Map<string, string>} read takes the hash of all that went in, and of what says how it is resolved
 * @returns {Plugin}
 */
const ourSources = (checkout, read) => ({
  name: "our-sources",
  setup: (build) => {
    build.onLoad({ filter: /\/packages\/[^/]+\/src\/.*\.ts$/ }, async ({ path }) => {
      const content = await readFile(path);
      const source = path.slice(checkout.length + 1);
      const manifest = `${source.split("/").slice(0, 2).join("/")}/package.json`;
      if (!read.has(manifest)) read.set(manifest, hashOf(await readFile(join(checkout, manifest))));
      read.set(source, hashOf(content));
      const here = JSON.stringify(`../../../${source}`);
      const contents = content
        .toString()
        .replaceAll("import.meta.url", `new URL(${here}, import.meta.url).href`)
        .replace('import { z } from "zod";', 'import * as z from "zod";');
      return { contents, loader: "ts" };
    });
  },
});

/** @type {Plugin} */
const packagesOutside = {
  name: "packages-outside",
  setup: (build) => {
    build.onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
      kind === "entry-point" || path.startsWith("@atoll/") || isBuiltin(path) ? undefined : { path, external: true },
    );
  },
};
