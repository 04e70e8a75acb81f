import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";

/** Where Atoll keeps what it can make again. */
export const defaultCacheDir = join(homedir(), ".cache", "atoll", "live");

/** Packages that load native code are imported from where they are; everything else becomes part of the file. */
const nativePackages = /^oxc-(parser|transform)$/;

const native: Plugin = {
  name: "native",
  setup(build) {
    const { resolve } = createRequire(import.meta.url);
    build.onResolve({ filter: nativePackages }, ({ path }) => {
      return { path: pathToFileURL(resolve(path)).href, external: true };
    });
  },
};

/** A program of this package as one file of JavaScript, made once per version of its sources. Returns its path. */
export async function bundleProgram(name: string, source: URL, cacheDir: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(source)],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20.19",
    conditions: ["source"],
    plugins: [native],
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
  });
  const text = outputFiles[0]?.text ?? "";
  const path = join(cacheDir, `${name}-${createHash("sha256").update(text).digest("hex").slice(0, 16)}.mjs`);
  if ((await readFile(path, "utf8").catch(() => undefined)) === text) return path;
  await mkdir(cacheDir, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, text);
  await rename(temporary, path);
  return path;
}
