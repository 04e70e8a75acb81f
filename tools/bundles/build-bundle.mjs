import { randomUUID } from "node:crypto";
import { readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { isBuiltin } from "node:module";
import { join, relative } from "node:path";
import { repositoryRoot } from "../setup/paths.mjs";
import { bundleRoot, hashOf, manifestPath } from "./fresh-bundle.mjs";

/** @typedef {import("./fresh-bundle.mjs").ProgramName} ProgramName */
/** @typedef {import("esbuild").Plugin} Plugin */

/**
 * The bundle of the command-line program contains its packages from npm (`hasPackages`). The bundle of the server does
 * not: the server starts once, and some of its packages look for files beside their own.
 *
 * @type {Readonly<Record<ProgramName, { hasPackages: boolean }>>}
 */
const programs = { cli: { hasPackages: true }, server: { hasPackages: false } };

/** @type {readonly ProgramName[]} */
export const programNames = ["cli", "server"];

/** Files beside the sources that decide how imports are resolved and how bundles are built. */
const settings = ["tsconfig.json", "node_modules/.package-lock.json", "tools/bundles/build-bundle.mjs"];

/** Old bundles stay this long, because a running program loads further parts of its own bundle when it needs them. */
const keptMs = 60 * 60_000;

/** A build starts again when a source changed while the build read it. */
const attempts = 3;

const requireBanner =
  'import { createRequire as makeBundleRequire } from "node:module"; ' +
  "const require = makeBundleRequire(import.meta.url);";

/** Two changes within one tick of the filesystem's clock get the same time. */
const tickMs = 20;

/**
 * Builds the bundle of one program and makes it the current one. Only one process may do this at a time.
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
 * @returns {Promise<boolean>} false when a source changed during the build, so that the bundle may mix two versions
 */
async function tryBuild(name, checkout) {
  const { build } = await import("esbuild");
  const directory = `${name}-${randomUUID()}`;
  const outdir = join(bundleRoot(checkout), directory);
  const { hasPackages } = programs[name];
  /** Hashes of the files that were read, by path. @type {Map<string, string>} */
  const read = new Map();
  for (const path of settings) read.set(path, hashOf(await readFile(join(checkout, path))));
  const { metafile } = await build({
    absWorkingDir: checkout,
    entryPoints: { main: `packages/${name}/src/main.ts` },
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    // Modules with a dynamic import stay in files of their own, loaded when needed: the clients of buckets are bigger
    // than all of Atoll.
    splitting: true,
    // The stack of an error in the server's log names lines of the sources.
    sourcemap: hasPackages ? false : "linked",
    format: "esm",
    platform: "node",
    target: "node20.19",
    conditions: ["source"],
    // Packages that are not ES modules call `require`. The banner uses an unusual name beside it, because esbuild does
    // not see what a banner declares and could declare the same name.
    ...(hasPackages ? { banner: { js: requireBanner } } : {}),
    plugins: [ourSources(checkout, read), hasPackages ? nativePackages(outdir) : packagesOutside],
    // esbuild looks for its program beside itself.
    external: ["esbuild"],
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
 * @returns {Promise<import("./fresh-bundle.mjs").Manifest["inputs"] | undefined>} undefined when a file differs from
 * what the build read
 */
async function stampAll(read, checkout) {
  /** @type {import("./fresh-bundle.mjs").Manifest["inputs"]} */
  const inputs = {};
  for (const [path, hash] of read) {
    const { size, mtimeMs, ctimeMs } = await stat(join(checkout, path));
    if (hashOf(await readFile(join(checkout, path))) !== hash) return undefined;
    // A later change within the same tick would leave the same times, so a recent file is compared by its content.
    const isRecent = Date.now() - ctimeMs < tickMs;
    inputs[path] = isRecent ? [size, 0, 0, hash] : [size, mtimeMs, ctimeMs, hash];
  }
  return inputs;
}

/** @param {string} checkout */
async function removeOld(checkout) {
  const current = await Promise.all(
    programNames.map(async (name) => {
      const text = await readFile(manifestPath(name, checkout), "utf8").catch(() => "{}");
      return JSON.parse(text).directory;
    }),
  );
  for (const entry of await readdir(bundleRoot(checkout))) {
    const path = join(bundleRoot(checkout), entry);
    const { mtimeMs } = await stat(path);
    const isManifest = programNames.some((name) => path === manifestPath(name, checkout));
    if (isManifest || current.includes(entry) || Date.now() - mtimeMs < keptMs) continue;
    await rm(path, { recursive: true, force: true });
  }
}

/**
 * Loads our own sources with two changes. `import.meta.url` becomes the URL of the source, so that a source that looks
 * for files beside itself finds them from the bundle. zod is imported as a namespace, because esbuild drops unused
 * exports of a namespace but not properties of the exported object `z`.
 *
 * @param {string} checkout
 * @param {Map<string, string>} read receives the hash of each source, and of each manifest that decides its imports
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

/**
 * Leaves packages out that look for a native library beside themselves. The path is relative to the bundle, because a
 * workspace can have a version of its own, and because a checkout can be copied.
 *
 * @param {string} outdir
 * @returns {Plugin}
 */
const nativePackages = (outdir) => ({
  name: "native-packages",
  setup: (build) => {
    build.onResolve(
      { filter: /^oxc-(parser|transform)$/ },
      async ({ path, importer, kind, resolveDir, pluginData }) => {
        // The inner call of this plugin leaves the work to esbuild.
        if (pluginData === outdir) return undefined;
        const found = await build.resolve(path, { importer, kind, resolveDir, pluginData: outdir });
        if (found.errors.length > 0) return { errors: found.errors };
        return { path: relative(outdir, found.path), external: true };
      },
    );
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
