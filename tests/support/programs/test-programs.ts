/**
 * Bundles each program that tests start and kill many times into one file, before the first test. Dozens of such
 * processes start in the time in which tsx would load the sources of one.
 */
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";

const programs = {
  "archive-worker": new URL("archive-worker.ts", import.meta.url),
  "crash-manager": new URL("crash-manager.ts", import.meta.url),
  "crash-server": new URL("crash-server.ts", import.meta.url),
  "lease-worker": new URL("lease-worker.ts", import.meta.url),
  "runner-worker": new URL("runner-worker.ts", import.meta.url),
  "scan-host": new URL("scan-host.ts", import.meta.url),
  "snapshot-worker": new URL("snapshot-worker.ts", import.meta.url),
  "store-worker": new URL("store-worker.ts", import.meta.url),
};

export type ProgramName = keyof typeof programs;

/** Returns the directory that vitest.config.ts has set for all workers of a run. */
function programsDir(): string {
  const directory = process.env["ATOLL_TEST_PROGRAMS"];
  if (directory === undefined) throw new Error("ATOLL_TEST_PROGRAMS is not set: run tests through vitest");
  return directory;
}

/** Returns the path of the bundle that Node runs. */
export function programPath(name: ProgramName): string {
  return join(programsDir(), `${name}.mjs`);
}

/** Vitest calls this before the first test, and the function that it returns after the last one. */
export async function setup(): Promise<() => Promise<void>> {
  const outdir = programsDir();
  await build({
    entryPoints: Object.fromEntries(Object.entries(programs).map(([name, url]) => [name, fileURLToPath(url)])),
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20.19",
    sourcemap: "inline",
    conditions: ["source"],
    plugins: [ourSources],
    logLevel: "error",
  });
  return () => rm(outdir, { recursive: true, force: true });
}

/** Gives each source its own `import.meta.url`. Packages stay outside, because some look for files beside their own. */
const ourSources: Plugin = {
  name: "our-sources",
  setup: (build) => {
    build.onLoad({ filter: /\.(ts|mjs)$/ }, async ({ path }) => {
      if (path.includes("/node_modules/")) return undefined;
      const text = await readFile(path, "utf8");
      const contents = text.replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href));
      return { contents, loader: path.endsWith(".ts") ? "ts" : "js" };
    });
    build.onResolve({ filter: /^[^./]/ }, ({ path, kind }) =>
      kind === "entry-point" || path.startsWith("@atoll/") || path.startsWith("#")
        ? undefined
        : { path, external: true },
    );
  },
};
