import { access, mkdir, mkdtemp, readdir, rename, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { z } from "zod";
import { remembered } from "../remembered.ts";
import { type Interpreter, versionText } from "./interpreters.ts";

const IndexPackages = z.object({
  /** Files on the host, to unpack beside the packages of the distribution. */
  wheels: z.array(z.string()).readonly(),
  missing: z.array(z.string()).readonly(),
});
export type IndexPackages = z.infer<typeof IndexPackages>;

const downloadTimeoutMs = 5 * 60_000;

/** Wheels only: what is in them is unpacked in the sandbox, and nothing of it is run on this machine. */
const flags = ["--quiet", "--no-deps", "--only-binary=:all:", "--retries=0", "--timeout=20", "--no-input"];

/**
 * Downloads what the distribution does not have from the index that pip of this machine is set up for. Without pip, or
 * without an index that can be reached, everything is missing, which the caller reports.
 */
export async function findIndexPackages(
  names: readonly string[],
  interpreter: Interpreter,
  { cacheDirectory, signal }: { cacheDirectory: string; signal: AbortSignal },
): Promise<IndexPackages> {
  if (names.length === 0) return { wheels: [], missing: [] };
  const question = { index: names.toSorted(), python: versionText(interpreter) };
  // An index that was out of reach may be there the next time.
  const isUsable = async ({ wheels, missing }: IndexPackages): Promise<boolean> =>
    missing.length === 0 && (await Promise.all(wheels.map(exists))).every(Boolean);
  return remembered({ cacheDirectory, question, schema: IndexPackages, isUsable }, async () => {
    const directory = join(cacheDirectory, "wheels");
    await mkdir(directory, { recursive: true });
    const wheels: string[] = [];
    const missing: string[] = [];
    for (const name of names) {
      const file = await download(name, interpreter, directory, signal);
      if (file === undefined) missing.push(name);
      else wheels.push(file);
    }
    return { wheels, missing };
  });
}

async function download(
  name: string,
  { path }: Interpreter,
  directory: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const temporary = await mkdtemp(join(directory, ".download-"));
  try {
    const args = ["-m", "pip", "download", ...flags, "--dest", temporary, name];
    const options = { signal, timeoutMs: downloadTimeoutMs, env: { HOME: homedir() } };
    const { exitCode } = await run(path, args, options);
    const [file] = (await readdir(temporary)).filter((entry) => entry.endsWith(".whl"));
    if (exitCode !== 0 || file === undefined) return undefined;
    await rename(join(temporary, file), join(directory, file));
    return join(directory, file);
  } catch {
    signal.throwIfAborted();
    return undefined;
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
