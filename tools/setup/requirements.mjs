import { access } from "node:fs/promises";
import { run } from "./run.mjs";
import { minimumRunscDate, parseRunscDate } from "./versions.mjs";

/**
 * @typedef {object} Requirement
 * @property {string} name
 * @property {readonly string[]} packages the packages that provide it on Debian and Ubuntu
 * @property {string} why
 * @property {string} without says what does not work when it is missing
 * @property {string} [driver] the driver that needs it; ATOLL_SKIP may name that driver
 * @property {boolean} [isForTests] only tests need it; where it cannot be installed, those tests are skipped
 * @property {() => Promise<Finding>} probe examines the machine, not a record of an earlier run
 *
 * @typedef {{ found: string, reason?: never } | { found?: never, reason: string }} Finding
 * @typedef {{ requirement: Requirement } & Finding} Probe
 */

/** @type {readonly Requirement[]} */
const requirements = [
  {
    name: "runsc",
    packages: ["runsc"],
    why: "runs gvisor sandboxes",
    without: "gvisor sandboxes cannot start; the local driver works where the setting policy offers it",
    driver: "gvisor",
    probe: probeRunsc,
  },
  {
    name: "cc",
    packages: ["gcc"],
    why: "compiles the guest program",
    without: "the guest program cannot be built, so no sandbox can start",
    probe: () => probeOutput("cc", ["--version"]),
  },
  {
    name: "libc.a",
    packages: ["libc6-dev"],
    why: "the guest program is linked statically, to run in any image",
    without: "the guest program cannot be built, so no sandbox can start",
    probe: probeStaticLibc,
  },
  {
    name: "python3",
    packages: ["python3"],
    why: "examples and tests run it inside the default template",
    without: "the default template, which shows the machine's /usr, has no Python",
    // The template contains /usr and no home directories, so a python3 elsewhere on PATH does not help.
    probe: () => probeOutput("/usr/bin/python3", ["--version"]),
  },
  {
    name: "curl",
    packages: ["curl"],
    why: "the server prints a curl command to try first; tests run it on the host and inside the default template",
    without: "the command that the server prints to try first does not work; the default template has no curl",
    probe: () => probeOutput("/usr/bin/curl", ["--version"]),
  },
  {
    name: "ps",
    packages: ["procps"],
    why: "shows, finds and ends processes inside the default template; tests do so",
    without: "the default template has no ps, pgrep and pkill",
    probe: () => probeOutput("/usr/bin/pgrep", ["--version"]),
  },
  {
    name: "bwrap",
    packages: ["bubblewrap"],
    why: "isolates live applications without a server",
    without: "live applications run as plain processes or under gVisor, not at level bubblewrap",
    probe: () => probeOutput("bwrap", ["--version"]),
  },
  ...[
    ["xz", "xz-utils", "--version"],
    ["zstd", "zstd", "--version"],
    // With --version it would then wait for input.
    ["bzip2", "bzip2", "--help"],
  ].map(([program = "", name = "", flag = ""]) => ({
    name: program,
    packages: [name],
    why: "unpacks templates",
    without: `templates from archives that are compressed with ${program} cannot be imported`,
    probe: () => probeOutput(program, [flag]),
  })),
  ...["zsh", "fish"].map((shell) => ({
    name: shell,
    packages: [shell],
    why: "tests of command-line completion run in it",
    without: `tests of completion in ${shell} do not run`,
    isForTests: true,
    probe: () => probeOutput(shell, ["--version"]),
  })),
  {
    name: "pip3",
    packages: ["python3-pip"],
    why: "tests download with it through the proxy of a sandbox",
    without: "tests of downloads by pip do not run",
    isForTests: true,
    // `pip3 --version` takes long, so only the file is looked for.
    probe: () => probeFile("/usr/bin/pip3"),
  },
  {
    name: "pytest",
    packages: ["python3-pytest"],
    why: "tests of the runner run repositories whose tests need it",
    without: "tests of the runner fail",
    isForTests: true,
    probe: () => probeFile("/usr/lib/python3/dist-packages/pytest/__init__.py"),
  },
  {
    name: "chromium",
    packages: ["chromium"],
    why: "tests look at pages in it",
    without: "tests of pages do not run",
    isForTests: true,
    probe: () => probeOutput("chromium", ["--version"]),
  },
  ...[
    ["dockerd", "docker.io"],
    ["podman", "podman"],
    ["runc", "runc"],
    ["catatonit", "catatonit"],
  ].map(([program = "", name = ""]) => ({
    name: program,
    packages: [name],
    why: "tests of the runner start containers with it, in an engine of their own",
    without: "tests of the runner in containers do not run",
    isForTests: true,
    probe: () => probeOutput(program, ["--version"]),
  })),
];

/**
 * @param {{ forTests: boolean }} purpose whether to include what only tests need
 * @returns {Promise<Probe[]>}
 */
export function probeAll({ forTests }) {
  const wanted = requirements.filter(({ isForTests }) => forTests || isForTests !== true);
  return Promise.all(wanted.map(async (requirement) => ({ requirement, ...(await requirement.probe()) })));
}

/**
 * @param {readonly Probe[]} probes
 * @returns {{ required: Requirement[], forTests: Requirement[] }} the requirements to install
 */
export function missingOf(probes) {
  const missing = probes.filter(({ found }) => found === undefined).map(({ requirement }) => requirement);
  return {
    required: missing.filter((requirement) => isRequired(requirement)),
    forTests: missing.filter(({ isForTests }) => isForTests === true),
  };
}

/**
 * @param {string} driver
 * @param {NodeJS.ProcessEnv} [env]
 */
export function isDriverSkipped(driver, env = process.env) {
  return (env["ATOLL_SKIP"] ?? "")
    .split(",")
    .map((name) => name.trim())
    .includes(driver);
}

/** @param {Requirement} requirement */
export function isRequired({ driver, isForTests }) {
  if (isForTests === true) return false;
  return driver === undefined || !isDriverSkipped(driver);
}

/**
 * @param {string} file
 * @param {readonly string[]} args
 * @returns {Promise<Finding>}
 */
async function probeOutput(file, args) {
  const { exitCode, output } = await run(file, args);
  if (exitCode !== 0) return { reason: `${file} is missing or does not run` };
  return { found: output.split("\n")[0] ?? "" };
}

/**
 * @param {string} path
 * @returns {Promise<Finding>}
 */
async function probeFile(path) {
  return access(path).then(
    () => ({ found: path }),
    () => ({ reason: `${path} is missing` }),
  );
}

/** @returns {Promise<Finding>} */
async function probeRunsc() {
  const { exitCode, stdout } = await run("runsc", ["--version"]);
  if (exitCode !== 0) return { reason: "runsc is missing or does not run" };
  const version = stdout.split("\n")[0] ?? "";
  const date = parseRunscDate(version);
  if (date !== undefined) {
    if (date >= minimumRunscDate) return { found: version };
    const { stdout: path } = await run("sh", ["-c", "command -v runsc"]);
    return { reason: `${version} at ${path.trim()} is too old: ${minimumRunscDate} or newer is needed` };
  }
  // A build from source has no date; the systrap platform came with the release that we need.
  const flags = await run("runsc", ["flags"]);
  if (flags.output.includes("systrap")) return { found: version };
  return { reason: `${version} has no systrap platform, ${minimumRunscDate} or newer is needed` };
}

/** @returns {Promise<Finding>} */
async function probeStaticLibc() {
  // When the compiler does not find the file it prints the bare name.
  const { stdout } = await run("cc", ["-print-file-name=libc.a"]);
  const path = stdout.trim();
  return path.startsWith("/") ? { found: path } : { reason: "the C library's headers and static archive are missing" };
}
