import { existsSync } from "node:fs";
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { run, tail } from "../setup/run.mjs";

/** The programs that build and run the machine, and the packages that contain them. */
const programs = {
  "/usr/bin/dpkg-deb": "dpkg",
  "/usr/bin/qemu-system-x86_64": "qemu-system-x86",
  "/usr/bin/setpriv": "util-linux",
  "/usr/sbin/mke2fs": "e2fsprogs",
};

/** apt waits for another apt on the machine, such as unattended upgrades. */
const patience = ["-o", "DPkg::Lock::Timeout=300"];
const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" };

/**
 * Installs the packages that are missing. They stay installed afterwards.
 *
 * @param {import("../setup/report.mjs").Report} report
 */
export async function installPrograms(report) {
  const missing = Object.entries(programs).filter(([path]) => !existsSync(path));
  if (missing.length === 0) return;
  const names = missing.map(([, name]) => name);
  const args = ["install", "--yes", "-q", "--no-install-recommends", ...patience, ...names];
  await report.step(`Installing ${names.join(", ")}`, () => withFreshLists(() => run("apt-get", args, { env })));
}

/**
 * Unpacks the files of a package without installing it.
 *
 * @param {string} name
 * @param {string} directory must not exist
 */
export async function unpackPackage(name, directory) {
  const archives = `${directory}.archives`;
  await mkdir(archives, { recursive: true });
  await withFreshLists(() => run("apt-get", ["download", "-q", name], { cwd: archives, env }));
  for (const archive of await readdir(archives)) {
    const { exitCode, output } = await run("dpkg-deb", ["-x", join(archives, archive), directory]);
    if (exitCode !== 0) throw new Error(`Cannot unpack ${archive}:\n${tail(output)}`);
  }
}

/**
 * Returns the package that an empty package depends on at present, as `linux-image-amd64` names the current kernel.
 *
 * @param {string} name
 * @param {RegExp} pattern
 * @returns {Promise<string>}
 */
export async function presentPackage(name, pattern) {
  const { stdout } = await withFreshLists(async () => {
    const result = await run("apt-cache", ["depends", name], { env });
    return { ...result, exitCode: pattern.test(result.stdout) ? result.exitCode : 1 };
  });
  return pattern.exec(stdout)?.[1] ?? name;
}

/**
 * Runs apt, and once more with new package lists if it fails, because the lists may be old or missing.
 *
 * @param {() => Promise<import("../setup/run.mjs").RunResult>} work
 */
async function withFreshLists(work) {
  const first = await work();
  if (first.exitCode === 0) return first;
  await run("apt-get", ["update", "-q"], { env });
  const second = await work();
  if (second.exitCode !== 0) throw new Error(`Cannot get packages through apt:\n${tail(second.output)}`);
  return second;
}
