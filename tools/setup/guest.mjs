import { createHash, randomUUID } from "node:crypto";
import { access, mkdir, readdir, readFile, readlink, realpath, rename, rm, symlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { cacheRoot, repositoryRoot } from "./paths.mjs";
import { run, tail } from "./run.mjs";

const sourceDir = join(repositoryRoot, "guest", "src");
const warnings = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];
const releaseFlags = ["-static", "-O2", ...warnings];
const sanitizeFlags = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", ...warnings];

/**
 * Returns the path of the guest program in this checkout: a link that set-up points at the build of the present
 * sources.
 */
export function guestBinaryPath() {
  return join(repositoryRoot, ".cache", "atoll-guest");
}

/**
 * Compiles the guest program unless the cache has a build of the same sources, flags and compiler. Several processes
 * may call this at once.
 *
 * @param {{ sanitize?: boolean }} [options] with `sanitize` the program stops at memory errors and undefined behaviour.
 * Such a build is not static, so it only runs on the host, in tests
 * @returns {Promise<string>} the program's path
 */
export async function buildGuest({ sanitize = false } = {}) {
  const flags = sanitize ? sanitizeFlags : releaseFlags;
  const sources = await listSources();
  const target = await cachedPath(sources, flags);
  if (await exists(target)) return target;
  await mkdir(dirname(target), { recursive: true });
  const draft = `${target}.${randomUUID()}`;
  try {
    const units = sources.filter((name) => name.endsWith(".c")).map((name) => join(sourceDir, name));
    const { exitCode, output } = await run("cc", [...flags, "-o", draft, ...units]);
    if (exitCode !== 0) throw new Error(`Cannot compile the guest program: cc printed:\n${tail(output, 40)}`);
    await rename(draft, target);
  } finally {
    await rm(draft, { force: true });
  }
  return target;
}

/**
 * Returns whether the checkout's link points at a build of the present sources. The build may be in another cache: a
 * run with a temporary cache must not move the link there, because the link would dangle when that cache is removed.
 */
export async function isGuestCurrent() {
  const target = await cachedPath(await listSources(), releaseFlags);
  const linked = await realpath(guestBinaryPath()).catch(() => undefined);
  return linked !== undefined && basename(dirname(linked)) === basename(dirname(target));
}

/** @param {string} binary */
export async function linkGuest(binary) {
  const link = guestBinaryPath();
  if ((await readlink(link).catch(() => undefined)) === binary) return;
  await mkdir(dirname(link), { recursive: true });
  const draft = `${link}.${randomUUID()}`;
  await symlink(binary, draft);
  await rename(draft, link);
}

export async function hasGuestSources() {
  return (await listSources()).some((name) => name.endsWith(".c"));
}

async function listSources() {
  const names = await readdir(sourceDir).catch(() => []);
  return names.filter((name) => /\.[ch]$/.test(name)).toSorted();
}

/**
 * @param {readonly string[]} sources
 * @param {readonly string[]} flags
 */
async function cachedPath(sources, flags) {
  const { stdout: compiler } = await run("cc", ["--version"]);
  const hash = createHash("sha256").update(JSON.stringify([flags, compiler]));
  for (const name of sources) {
    hash.update(JSON.stringify([name, await readFile(join(sourceDir, name), "utf8")]));
  }
  return join(cacheRoot(), "guest", hash.digest("hex").slice(0, 16), "atoll-guest");
}

/** @param {string} path */
async function exists(path) {
  return access(path).then(
    () => true,
    () => false,
  );
}
