import { randomUUID } from "node:crypto";
import { access, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deriveSource } from "./apt-sources.mjs";
import { missingOf, probeAll } from "./requirements.mjs";
import { run, tail } from "./run.mjs";
import { minimumRunscDate, pickRunscVersion } from "./versions.mjs";

const aptDir = "/etc/apt";

/** Releases whose own runsc is too old, with a backports suite whose runsc is new enough. */
const backportsOf = new Map([["bookworm", "bookworm-backports"]]);

/** @typedef {import("./report.mjs").Report} Report */

/**
 * Installs missing packages through apt where that is possible, and prints the commands to type where it is not.
 *
 * @param {Report} report
 * @param {{ forTests: boolean }} purpose
 * @returns {Promise<import("./requirements.mjs").Probe[]>} what is installed afterwards
 */
export async function installSystemPackages(report, purpose) {
  const probes = await probeAll(purpose);
  const { required, forTests } = missingOf(probes);
  if (required.length > 0 && !(await installRequired(report, required))) return probes;
  if (forTests.length > 0) await installForTests(report, forTests);
  return probeAll(purpose);
}

/** @typedef {import("./requirements.mjs").Requirement} Requirement */

/** @param {readonly Requirement[]} missing */
function packagesOf(missing) {
  return missing.flatMap(({ packages }) => packages);
}

/**
 * @param {Report} report
 * @param {readonly Requirement[]} missing
 * @returns {Promise<boolean>} false, after a report, when there is no way to install anything
 */
async function installRequired(report, missing) {
  const packages = packagesOf(missing);
  if ((await run("apt-get", ["--version"])).exitCode !== 0) {
    report.say(
      `System packages are installed by hand here, since there is no apt-get. Needed: ${missing
        .map(({ name, why }) => `${name} (${why})`)
        .join(", ")}`,
    );
    return false;
  }
  const apt = await findApt(report, { mayAskPassword: true });
  if (apt === undefined) {
    report.say(
      `Installing system packages needs root. Run these commands, then npm run setup again:\n${(
        await manualCommands(packages)
      ).join("\n")}`,
    );
    return false;
  }
  await installOrdinary(
    apt,
    packages.filter((name) => name !== "runsc"),
  );
  if (packages.includes("runsc")) await installRunsc(apt, report);
  return true;
}

/**
 * Installs what only tests need. Where that needs a password, or fails, the tests that need it are skipped.
 *
 * @param {Report} report
 * @param {readonly Requirement[]} missing
 */
async function installForTests(report, missing) {
  if ((await run("apt-get", ["--version"])).exitCode !== 0) return;
  const apt = await findApt(report, { mayAskPassword: false });
  if (apt === undefined) return;
  await installOrdinary(apt, packagesOf(missing)).catch((error) => report.say(error.message));
}

/**
 * @typedef {object} Apt
 * @property {(title: string, file: string, args: readonly string[]) => Promise<import("./run.mjs").RunResult>} asRoot
 * @property {() => Promise<void>} update reads the package lists, once per run of this program
 */

/**
 * @param {Report} report
 * @param {{ mayAskPassword: boolean }} options
 * @returns {Promise<Apt | undefined>} undefined if there is no way to become root
 */
async function findApt(report, { mayAskPassword }) {
  const prefix = await rootPrefix(mayAskPassword);
  if (prefix === undefined) return undefined;
  /** @type {Apt["asRoot"]} */
  const asRoot = (title, file, args) => {
    const [first = "env", ...rest] = [...prefix, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", file, ...args];
    return report.step(title, () => run(first, rest, { stdin: prefix.includes("sudo") ? "inherit" : "ignore" }));
  };
  /** @type {Promise<void> | undefined} */
  let updated;
  return {
    asRoot,
    update: () => {
      // A list that does not load may belong to a source that we do not need. If we do need it, the installation fails
      // and reports that.
      updated ??= asRoot("Reading the package lists", "apt-get", ["update", "-q"]).then(() => undefined);
      return updated;
    },
  };
}

/**
 * @param {boolean} mayAskPassword
 * @returns {Promise<string[] | undefined>} the words before a command that make root run it
 */
async function rootPrefix(mayAskPassword) {
  if (process.getuid?.() === 0) return [];
  if ((await run("sudo", ["-n", "true"])).exitCode === 0) return ["sudo", "-n"];
  const canAskPassword = mayAskPassword && process.stdin.isTTY && (await run("sudo", ["--version"])).exitCode === 0;
  return canAskPassword ? ["sudo"] : undefined;
}

/**
 * @param {Apt} apt
 * @param {readonly string[]} packages
 */
async function installOrdinary(apt, packages) {
  if (packages.length === 0) return;
  const first = await install(apt, packages);
  if (first.exitCode === 0) return;
  // Usually the package lists are empty or out of date.
  await apt.update();
  const second = await install(apt, packages);
  if (second.exitCode !== 0) throw aptError(packages, second.output);
}

/**
 * @param {Apt} apt
 * @param {Report} report
 */
async function installRunsc(apt, report) {
  let version = await offeredRunsc();
  if (version === undefined) {
    await apt.update();
    version = await offeredRunsc();
  }
  if (version !== undefined) {
    const { exitCode, output } = await install(apt, [`runsc=${version}`]);
    if (exitCode !== 0) throw aptError(["runsc"], output);
    return;
  }
  const source = await backportsSource();
  if (source === undefined) {
    report.say(
      `apt offers no runsc of ${minimumRunscDate} or newer here. Install gVisor's own package, ` +
        "as its installation guide describes, then run npm run setup again",
    );
    return;
  }
  await installFromBackports(apt, source);
}

/**
 * Installs runsc from the backports suite. The new apt source stays only if the installation succeeds.
 *
 * @param {Apt} apt
 * @param {BackportsSource} source
 */
async function installFromBackports(apt, { suite, path, text }) {
  const isOurs = !(await exists(path));
  const draft = join(tmpdir(), `atoll-${randomUUID()}`);
  let isInstalled = false;
  try {
    await writeFile(draft, text);
    const written = await apt.asRoot(`Adding ${suite} to the package sources`, "install", ["-m", "644", draft, path]);
    if (written.exitCode !== 0) throw new Error(`Cannot write ${path}: ${tail(written.output, 3)}`);
    const onlyThis = [
      "-o",
      `Dir::Etc::sourcelist=${path}`,
      "-o",
      "Dir::Etc::sourceparts=-",
      "-o",
      "APT::Get::List-Cleanup=0",
    ];
    const updated = await apt.asRoot(`Reading the package list of ${suite}`, "apt-get", ["update", "-q", ...onlyThis]);
    const version = await offeredRunsc();
    if (version === undefined) throw aptError(["runsc"], updated.output);
    const { exitCode, output } = await install(apt, [`runsc=${version}`]);
    if (exitCode !== 0) throw aptError(["runsc"], output);
    isInstalled = true;
  } finally {
    await rm(draft, { force: true });
    if (isOurs && !isInstalled) await apt.asRoot(`Removing ${suite} again`, "rm", ["-f", path]);
  }
}

/**
 * @param {Apt} apt
 * @param {readonly string[]} packages
 */
function install(apt, packages) {
  // apt waits for another apt on the machine, such as unattended upgrades.
  const options = ["-y", "-q", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"];
  return apt.asRoot(`Installing ${packages.join(", ")}`, "apt-get", ["install", ...options, ...packages]);
}

async function offeredRunsc() {
  const { stdout } = await run("apt-cache", ["policy", "runsc"], { env: { ...process.env, LC_ALL: "C" } });
  return pickRunscVersion(stdout);
}

/**
 * @typedef {{ suite: string, path: string, text: string }} BackportsSource
 * @returns {Promise<BackportsSource | undefined>} undefined if no suite with a new enough runsc is known
 */
async function backportsSource() {
  const release = await readFile("/etc/os-release", "utf8").catch(() => "");
  const codename = /^VERSION_CODENAME="?([a-z]+)"?$/m.exec(release)?.[1] ?? "";
  const suite = backportsOf.get(codename);
  if (suite === undefined) return undefined;
  const source = deriveSource(await readSources(), { from: codename, to: suite });
  if (source === undefined) return undefined;
  return {
    suite,
    path: join(aptDir, "sources.list.d", `atoll-backports.${source.extension}`),
    text: source.text,
  };
}

async function readSources() {
  /** @type {string[]} */
  const parts = await readdir(join(aptDir, "sources.list.d")).catch(() => []);
  const names = ["sources.list", ...parts.toSorted().map((name) => join("sources.list.d", name))];
  return Promise.all(
    names.map(async (name) => ({ name, text: await readFile(join(aptDir, name), "utf8").catch(() => "") })),
  );
}

/** @param {readonly string[]} packages */
async function manualCommands(packages) {
  const ordinary = packages.filter((name) => name !== "runsc");
  const commands = ["apt-get update"];
  const install = "apt-get install -y --no-install-recommends";
  if (ordinary.length > 0) commands.push(`${install} ${ordinary.join(" ")}`);
  if (!packages.includes("runsc")) return commands;
  const version = await offeredRunsc();
  const source = await backportsSource();
  if (version !== undefined) {
    commands.push(`${install} runsc=${version}`);
  } else if (source !== undefined) {
    const lines = source.text
      .trimEnd()
      .split("\n")
      .map((line) => `'${line}'`);
    commands.push(`printf '%s\\n' ${lines.join(" ")} > ${source.path}`, "apt-get update");
    commands.push(`${install} -t ${source.suite} runsc`);
  } else {
    commands.push(
      `# and gVisor's own runsc package, ${minimumRunscDate} or newer, as its installation guide describes`,
    );
  }
  return commands;
}

/**
 * @param {readonly string[]} packages
 * @param {string} output
 */
function aptError(packages, output) {
  return new Error(`Cannot install ${packages.join(", ")}: apt printed:\n${tail(output)}`);
}

/** @param {string} path */
async function exists(path) {
  return access(path).then(
    () => true,
    () => false,
  );
}
