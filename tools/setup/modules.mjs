import { createHash } from "node:crypto";
import { readFile, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { repositoryRoot } from "./paths.mjs";
import { run, tail } from "./run.mjs";

const stampPath = join(repositoryRoot, "node_modules", ".atoll-lock-hash");

/**
 * What npm tells the scripts it runs about the call it is in, and where it looks
 * for a project. The inner npm must find out for itself.
 */
const npmCallVariables =
  /^(npm_lifecycle_|npm_package_|npm_command$|npm_config_(local_prefix|workspace|workspaces)$|INIT_CWD$)/i;

/** Whether node_modules holds what package-lock.json asks for. */
export async function areModulesCurrent() {
  const lock = await readFile(join(repositoryRoot, "package-lock.json"), "utf8");
  const stamp = await readFile(stampPath, "utf8").catch(() => "");
  if (stamp === hashOf(lock)) return true;
  const installed = await readFile(join(repositoryRoot, "node_modules", ".package-lock.json"), "utf8").catch(() => "");
  if (installed === "" || !describesLock(JSON.parse(installed), JSON.parse(lock))) return false;
  await writeStamp(lock);
  return true;
}

/**
 * Whether npm's own record of an installation agrees with the lock file: after
 * "npm install <package>" everything is in place, and a clean installation would
 * only pull node_modules away from under whatever runs.
 *
 * @typedef {{ packages?: Record<string, { version?: string, optional?: boolean }> }} LockFile
 * @param {LockFile} installed
 * @param {LockFile} lock
 */
export function describesLock(installed, lock) {
  const have = modulesIn(installed);
  const want = modulesIn(lock);
  return (
    [...want].every(([path, { version, optional }]) => {
      const entry = have.get(path);
      return entry === undefined ? optional === true : entry.version === version;
    }) && [...have.keys()].every((path) => want.has(path))
  );
}

/** @param {LockFile} lock */
function modulesIn({ packages = {} }) {
  return new Map(Object.entries(packages).filter(([path]) => path.includes("node_modules/")));
}

/** @param {import("./report.mjs").Report} report */
export async function installModules(report) {
  await report.step("Installing npm packages", async () => {
    const lock = await readFile(join(repositoryRoot, "package-lock.json"), "utf8");
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !npmCallVariables.test(name)));
    const npm = process.env["npm_execpath"];
    // Development tools are what a checkout is for, whatever NODE_ENV says.
    const args = ["ci", "--include=dev", "--no-audit", "--no-fund"];
    const { exitCode, output } =
      npm?.endsWith(".js") === true
        ? await run(process.execPath, [npm, ...args], { cwd: repositoryRoot, env })
        : await run("npm", args, { cwd: repositoryRoot, env });
    if (exitCode !== 0) throw new Error(`Cannot install the npm packages: npm ci says\n${tail(output)}`);
    await writeStamp(lock);
  });
}

/** @param {string} lock */
async function writeStamp(lock) {
  const draft = `${stampPath}.${process.pid}`;
  await writeFile(draft, hashOf(lock));
  await rename(draft, stampPath);
}

/** @param {string} text */
function hashOf(text) {
  return createHash("sha256").update(text).digest("hex");
}
