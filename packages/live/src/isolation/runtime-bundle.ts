import { createHash } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const entry = fileURLToPath(new URL("../runtime/main.ts", import.meta.url));

let made: Promise<string> | undefined;

/** The path of the runtime as one file of JavaScript, made once per version of its sources. */
export function runtimeBundle(cacheDir = join(homedir(), ".cache", "atoll", "live")): Promise<string> {
  made ??= makeBundle(cacheDir);
  // What could not be made is tried again by the next caller.
  made.catch(() => (made = undefined));
  return made;
}

async function makeBundle(cacheDir: string): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20.19",
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
  });
  const text = outputFiles[0]?.text ?? "";
  const path = join(cacheDir, `runtime-${createHash("sha256").update(text).digest("hex").slice(0, 16)}.mjs`);
  if ((await readFile(path, "utf8").catch(() => undefined)) === text) return path;
  await mkdir(cacheDir, { recursive: true });
  const temporary = `${path}.${process.pid}`;
  await writeFile(temporary, text);
  await rename(temporary, path);
  return path;
}
