/**
 * Programs that tests start again and again and kill, each made one file before the first test: dozens of processes
 * start in the time that the loader of sources takes for one.
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
  "scan-host": new URL("scan-host.ts", import.meta.url),
  "snapshot-worker": new URL("snapshot-worker.ts", import.meta.url),
  "store-worker": new URL("store-worker.ts", import.meta.url),
};

export type ProgramName = keyof typeof programs;

/** Set by vitest.config.ts for all workers of a run. In the checkout, where packages are found. */
function programsDir(): string {
  const directory = process.env["ATOLL_TEST_PROGRAMS"];
  if (directory === undefined) throw new Error("ATOLL_TEST_PROGRAMS is not set: run tests through vitest");
  return directory;
}

/** What Node is to run. */
export function programPath(name: ProgramName): string {
  return join(programsDir(), `${name}.mjs`);
}

/** Called by vitest before the first test; what it resolves to, after the last. */
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

/** Each source sees its own place, and packages stay outside: some look for files beside their own. */
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
      kind === "entry-point" || path.startsWith("@atoll/") ? undefined : { path, external: true },
    );
  },
};
