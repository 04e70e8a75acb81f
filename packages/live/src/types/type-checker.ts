import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { hasErrno, run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { Diagnostic } from "../compiler/artifact.ts";
import { codeFrame } from "../compiler/code-frame.ts";
import { sourceOf } from "../compiler/source-places.ts";
import type { Modules } from "../versions/app-versions.ts";

const timeoutMs = 120_000;
const maxOutputBytes = 4 * 1024 * 1024;
/** Types can be written that need any amount of memory and time. These are enough for honest ones: 2 GiB and 120 s. */
const limited = 'ulimit -c 0; ulimit -d 2097152 && ulimit -t 120 && exec "$@"';

export interface TypeCheck {
  diagnostics: Diagnostic[];
  durationMs: number;
}

/** What an app without a `tsconfig.json` is checked by. */
const defaultOptions = { strict: true, target: "es2023", lib: ["es2023", "esnext.disposable"] };
/** What every app is checked by, since it is what the compiler and the runtime do. */
const fixedOptions = {
  noEmit: true,
  module: "esnext",
  moduleResolution: "bundler",
  moduleDetection: "force",
  allowImportingTsExtensions: true,
  resolveJsonModule: true,
  isolatedModules: true,
  skipLibCheck: true,
  composite: false,
  incremental: true,
};

/**
 * Checks the types of apps by `tsc` in a process of its own. The modules of a generation are put into a folder beside
 * the packages of the app, so that what is checked is what runs, whatever the files of the app have by now. `tsc` keeps
 * there what it knows, and looks again only at what depends on a change.
 */
export class TypeChecker {
  readonly #cacheDir: string;
  #turn: Promise<unknown> = Promise.resolve();
  readonly #ending = new AbortController();

  constructor(cacheDir: string) {
    this.#cacheDir = join(cacheDir, "types");
  }

  /** One check at a time, since each needs as much memory as it likes and a processor. */
  check(app: { id: string; folder: string; modules: Modules }): Promise<TypeCheck> {
    const result = this.#turn.then(() => this.#check(app));
    this.#turn = result.catch(() => undefined);
    return result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ending.abort();
    await this.#turn;
  }

  async #check({ id, folder, modules }: { id: string; folder: string; modules: Modules }): Promise<TypeCheck> {
    this.#ending.signal.throwIfAborted();
    const startedAt = performance.now();
    const root = join(this.#cacheDir, `${id}-${createHash("sha256").update(folder).digest("hex").slice(0, 12)}`);
    const copy = join(root, folder);
    const sources = new Map([...modules].map(([module, artifact]) => [module, sourceOf(artifact)]));
    await mkdir(copy, { recursive: true });
    await linkPackages(root, folder);
    await putSources(copy, sources);
    await writeConfig(copy, folder, [...sources.keys()]);
    const command = [process.execPath, compilerPath(folder), "--pretty", "false", "-p", copy];
    const { exitCode, stdout, stderr } = await run("/bin/sh", ["-c", limited, "sh", ...command], {
      signal: this.#ending.signal,
      timeoutMs,
      maxOutputBytes,
      cwd: copy,
    });
    const diagnostics = parse(stdout, sources);
    if (exitCode !== 0 && diagnostics.length === 0) {
      const output = (stdout + stderr).trim().slice(0, 500);
      throw new SandboxError("unavailable", `Cannot check the types of ${id}: tsc ended with ${exitCode}: ${output}`);
    }
    return { diagnostics, durationMs: performance.now() - startedAt };
  }
}

/** The `tsc` of the app, or else the one that comes with this package. */
function compilerPath(folder: string): string {
  for (const from of [join(folder, "package.json"), import.meta.url]) {
    try {
      return join(dirname(createRequire(from).resolve("typescript/package.json")), "bin/tsc");
    } catch {
      // The next one may have it.
    }
  }
  throw new SandboxError("unsupported", "Cannot check types: there is no typescript", {
    suggestion: "Install typescript in the app, or set typeCheck to off.",
  });
}

/** Packages are found from the copy as from the folder: in the `node_modules` of each folder above it. */
async function linkPackages(root: string, folder: string): Promise<void> {
  for (let above = folder; ; above = dirname(above)) {
    const packages = join(above, "node_modules");
    const isThere = await stat(packages).then(
      (found) => found.isDirectory(),
      () => false,
    );
    const link = join(root, packages);
    if (isThere) {
      await symlink(packages, link).catch((error: unknown) => {
        if (!hasErrno(error, "EEXIST")) throw error;
      });
    } else await rm(link, { force: true });
    if (above === dirname(above)) return;
  }
}

/** Writes what differs, and removes what is no longer part of the app. */
async function putSources(copy: string, sources: ReadonlyMap<string, string>): Promise<void> {
  const known = await readdir(copy, { recursive: true, withFileTypes: true });
  for (const entry of known) {
    const path = join(entry.parentPath, entry.name);
    const module = path.slice(copy.length + 1);
    const isOurs = module === "tsconfig.json" || module === "tsconfig.tsbuildinfo" || sources.has(module);
    if (entry.isFile() && !isOurs && !module.startsWith("node_modules/")) await rm(path, { force: true });
  }
  for (const [module, source] of sources) {
    const path = join(copy, module);
    if ((await readFile(path, "utf8").catch(() => undefined)) === source) continue;
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, source);
  }
}

async function writeConfig(copy: string, folder: string, modules: readonly string[]): Promise<void> {
  const own = join(folder, "tsconfig.json");
  const hasOwn = await stat(own).then(
    () => true,
    () => false,
  );
  const runtimeTypes = fileURLToPath(new URL("../app/index.ts", import.meta.url));
  const config = {
    ...(hasOwn ? { extends: own } : {}),
    compilerOptions: {
      ...(hasOwn ? {} : defaultOptions),
      ...fixedOptions,
      tsBuildInfoFile: "./tsconfig.tsbuildinfo",
      rootDir: "/",
      // The runtime brings this module, so no app has to install it.
      paths: { "@atoll/live/app": [runtimeTypes] },
      ...(hasOwn ? {} : { types: (await hasNodeTypes(folder)) ? ["node"] : [] }),
    },
    files: modules.filter((module) => !module.endsWith(".json")).map((module) => `./${module}`),
    include: [],
  };
  const text = JSON.stringify(config, undefined, 2);
  const path = join(copy, "tsconfig.json");
  if ((await readFile(path, "utf8").catch(() => undefined)) !== text) await writeFile(path, text);
}

async function hasNodeTypes(folder: string): Promise<boolean> {
  try {
    createRequire(join(folder, "package.json")).resolve("@types/node/package.json");
    return true;
  } catch {
    return false;
  }
}

const line =
  /^(?<file>[^\s(][^(]*)\((?<line>\d+),(?<column>\d+)\): (?<severity>error|warning) (?<code>TS\d+): (?<text>.*)$/;

/** What `tsc` printed, for the modules of the app. Lines that go on a message are indented. */
function parse(output: string, sources: ReadonlyMap<string, string>): Diagnostic[] {
  const diagnostics: Diagnostic[] = [];
  for (const printed of output.split("\n")) {
    const found = line.exec(printed)?.groups;
    const last = diagnostics.at(-1);
    if (found === undefined) {
      if (last !== undefined && printed.startsWith("  ")) last.message += `\n${printed}`;
      continue;
    }
    const module = found["file"] ?? "";
    if (!sources.has(module)) continue;
    const position = { line: Number(found["line"]), column: Number(found["column"]) };
    diagnostics.push({
      file: module,
      ...position,
      severity: found["severity"] === "warning" ? "warning" : "error",
      kind: "type",
      code: found["code"] ?? "",
      message: found["text"] ?? "",
      frame: codeFrame(sources.get(module) ?? "", position),
    });
  }
  return diagnostics;
}
