import { readdir } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { z } from "zod";
import { remembered, stampOf } from "../remembered.ts";

/** A Python of this machine. */
const Interpreter = z.object({
  /** Such as `[3, 11, 2]`. */
  version: z.array(z.int()).readonly(),
  path: z.string(),
  /** `system` interpreters are below /usr, which sandboxes see; others are copied into them. */
  origin: z.enum(["system", "copied"]),
  /** The directory that a copy takes. */
  prefix: z.string(),
});
export type Interpreter = z.infer<typeof Interpreter>;

const probe = "import sys, json; print(json.dumps([list(sys.version_info[:3]), sys.base_prefix]))";
const Probe = z.tuple([z.array(z.int()), z.string()]);

const probeTimeoutMs = 20_000;

export interface InterpreterSearch {
  cacheDirectory: string;
  signal: AbortSignal;
  /** The user's home directory, whose pyenv is searched. */
  home?: string;
  /** Where the system has its interpreters. */
  systemDirectories?: readonly string[];
}

/**
 * Returns the interpreters of this machine, the newest first: those of the system and those that the user's pyenv has
 * built. One that does not start is left out.
 */
export async function findInterpreters(search: InterpreterSearch): Promise<Interpreter[]> {
  const { cacheDirectory, home = homedir(), signal, systemDirectories = ["/usr/bin"] } = search;
  const pyenv = join(home, ".pyenv", "versions");
  const versions = (await names(pyenv)).filter((name) => /^\d+\.\d+/.test(name));
  const directories = [
    ...systemDirectories.map((path) => ({ path, origin: "system" as const })),
    ...versions.map((version) => ({ path: join(pyenv, version, "bin"), origin: "copied" as const })),
  ];
  const listed = await Promise.all(
    directories.map(async ({ path, origin }) => {
      const programs = (await names(path)).filter((name) => /^python[23]\.\d+$/.test(name));
      return programs.map((name) => ({ path: join(path, name), origin }));
    }),
  );
  const programs = listed.flat();
  const question = { interpreters: programs, stamp: await stampOf(programs.map(({ path }) => path)) };
  return remembered({ cacheDirectory, question, schema: z.array(Interpreter) }, async () => {
    const found = await Promise.all(programs.map(({ path, origin }) => examine(path, origin, signal)));
    return found
      .filter((interpreter) => interpreter !== undefined)
      .toSorted((a, b) => compareVersions(b.version, a.version));
  });
}

/**
 * Returns the interpreter that a recipe asks for: a path, or a version such as `3.9`, of which the system's comes
 * first. Without a wish it is the newest of the system, because its packages are those of the distribution.
 */
export function chooseInterpreter(found: readonly Interpreter[], wish: string | undefined): Interpreter | undefined {
  const ordered = [...found.filter(isSystem), ...found.filter((interpreter) => !isSystem(interpreter))];
  if (wish === undefined) return ordered[0];
  if (wish.includes("/")) return ordered.find(({ path }) => path === wish);
  const wanted = wish.split(".").map(Number);
  return ordered.find(({ version }) => wanted.every((part, index) => version[index] === part));
}

const isSystem = ({ origin }: Interpreter): boolean => origin === "system";

export function compareVersions(a: readonly number[], b: readonly number[]): number {
  for (let index = 0; index < Math.max(a.length, b.length); index++) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

export const versionText = ({ version }: Pick<Interpreter, "version">): string => version.join(".");

/** `3.11`, as directories of packages are named. */
export const minorText = ({ version }: Pick<Interpreter, "version">): string => version.slice(0, 2).join(".");

async function examine(
  path: string,
  origin: Interpreter["origin"],
  signal: AbortSignal,
): Promise<Interpreter | undefined> {
  try {
    const { exitCode, stdout } = await run(path, ["-I", "-S", "-c", probe], { signal, timeoutMs: probeTimeoutMs });
    if (exitCode !== 0) return undefined;
    const [version, prefix] = Probe.parse(JSON.parse(stdout));
    return { version, path, origin, prefix };
  } catch {
    signal.throwIfAborted();
    return undefined;
  }
}

async function names(directory: string): Promise<string[]> {
  try {
    return await readdir(directory);
  } catch {
    return [];
  }
}
