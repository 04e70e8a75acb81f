import { randomUUID } from "node:crypto";
import { mkdir, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { run } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { type Interpreter, minorText, versionText } from "./interpreters.ts";

/** Raised when an archive of the same interpreter would have other files. */
export const packVersion = 2;

const packTimeoutMs = 10 * 60_000;

/** An archive of an interpreter with its library, without its tests and its packages; made once. */
export async function packInterpreter(
  interpreter: Interpreter,
  cacheDirectory: string,
  signal: AbortSignal,
): Promise<string> {
  const directory = join(cacheDirectory, "interpreters");
  const archive = join(directory, `python-${versionText(interpreter)}-${packVersion}.tar`);
  if (await exists(archive)) return archive;
  await mkdir(directory, { recursive: true });
  const library = `./lib/python${minorText(interpreter)}`;
  const excluded = [
    `${library}/site-packages/*`,
    // What other tests use of them stays.
    `${library}/test/[!_s]*`,
    `${library}/test/s[!u]*`,
    `${library}/test/__pycache__`,
    `${library}/config-*`,
    `${library}/idlelib`,
    `${library}/pydoc_data`,
    `${library}/tkinter`,
    `${library}/turtledemo`,
    `${library}/*/test`,
    `${library}/*/tests`,
    "./lib/*.a",
    "./share",
  ];
  const unfinished = `${archive}.${randomUUID()}`;
  const args = ["-c", "-f", unfinished, "-C", interpreter.prefix, ...excluded.map((path) => `--exclude=${path}`), "."];
  try {
    const { exitCode, stderr } = await run("tar", args, { signal, timeoutMs: packTimeoutMs });
    if (exitCode !== 0) {
      throw new SandboxError("storage_failed", `Cannot pack ${interpreter.path}: ${stderr.trim()}`, {
        suggestion: "See that the interpreter can be read and that the cache directory has room.",
      });
    }
    await rename(unfinished, archive);
  } finally {
    await rm(unfinished, { force: true });
  }
  return archive;
}

async function exists(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isFile();
  } catch {
    return false;
  }
}
