import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { repositoryRoot } from "./paths.mjs";
import { run, tail } from "./run.mjs";

const lockPath = join(repositoryRoot, "package-lock.json");

/** npm's own record of what it installed. npm writes it last, so an interrupted installation has none. */
const recordPath = join(repositoryRoot, "node_modules", ".package-lock.json");

/**
 * Variables with which npm describes the current call and project to the scripts that it runs. The npm that we start
 * must find these values itself.
 */
const npmCallVariables =
  /^(npm_lifecycle_|npm_package_|npm_command$|npm_config_(local_prefix|workspace|workspaces)$|INIT_CWD$)/i;

/** Returns whether node_modules contains what package-lock.json asks for. */
export async function areModulesCurrent() {
  const record = await readFile(recordPath, "utf8").catch(() => undefined);
  if (record === undefined) return false;
  return describesLock(JSON.parse(record), JSON.parse(await readFile(lockPath, "utf8")));
}

/**
 * @typedef {{ packages?: Record<string, { version?: string, optional?: boolean }> }} LockFile
 * @param {LockFile} record
 * @param {LockFile} lock
 */
export function describesLock(record, lock) {
  const have = modulesIn(record);
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
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !npmCallVariables.test(name)));
    const npm = process.env["npm_execpath"];
    // A checkout is for development, so development tools are installed even if NODE_ENV says otherwise.
    const args = ["ci", "--include=dev", "--no-audit", "--no-fund"];
    const { exitCode, output } =
      npm?.endsWith("npm-cli.js") === true
        ? await run(process.execPath, [npm, ...args], { cwd: repositoryRoot, env })
        : await run("npm", args, { cwd: repositoryRoot, env });
    if (exitCode !== 0) throw new Error(`Cannot install the npm packages: npm ci printed:\n${errorsOf(output)}`);
  });
}

/**
 * Returns the first errors of npm, which have the cause: after an error of use it prints all of its options.
 *
 * @param {string} output
 */
function errorsOf(output) {
  const errors = output.split("\n").filter((line) => line.startsWith("npm error"));
  return errors.length === 0 ? tail(output) : errors.slice(0, 20).join("\n");
}
