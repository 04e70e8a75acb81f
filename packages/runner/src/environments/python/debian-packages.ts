import { access, copyFile, mkdir, mkdtemp, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { run, type RunResult } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { remembered, stampOf } from "../remembered.ts";
import { debianNames } from "./distribution-names.ts";

/** One package of the distribution with Python modules in it. */
const DebianPackage = z.object({
  name: z.string(),
  version: z.string(),
  /** Whether the machine has it; others are unpacked in the sandbox. */
  installed: z.boolean(),
  /** Names of modules and metadata that it has in the directory of packages. */
  entries: z.array(z.string()).readonly(),
});
type DebianPackage = z.infer<typeof DebianPackage>;

const DebianPackages = z.object({
  packages: z.array(DebianPackage).readonly(),
  /** Archives to unpack in the sandbox, with the libraries that the packages need. */
  archives: z.array(z.string()).readonly(),
  /** Distributions that Debian has not. */
  missing: z.array(z.string()).readonly(),
});
export type DebianPackages = z.infer<typeof DebianPackages>;

/** What changes when packages are installed or lists of packages are fetched. */
const packageDatabase = ["/var/lib/dpkg/status", "/var/lib/apt/lists"];

export const distPackages = "/usr/lib/python3/dist-packages";

/** Where apt keeps what it has downloaded. */
const aptArchives = "/var/cache/apt/archives";

const queryTimeoutMs = 60_000;
const downloadTimeoutMs = 15 * 60_000;
const maxOutputBytes = 64 * 1024 * 1024;
/** Needed to build scipy, and not to use it, although its package depends on it. */
const buildTools = new Set(["python3-pythran", "python3-gast", "python3-beniget"]);
/** Python itself, which its packages depend on, is not made visible. */
const interpreterPackages = /^python3(-minimal|-dev|-venv|-distutils|-lib2to3|-tk|-gdbm|\.\d+.*)?$/;

export interface DebianSearch {
  cacheDirectory: string;
  signal: AbortSignal;
}

/**
 * Finds the Debian packages of these distributions with everything in Python that they depend on. What the machine does
 * not have is downloaded, not installed: nothing about the machine changes, and no right of root is needed.
 */
export async function findDebianPackages(wanted: readonly string[], search: DebianSearch): Promise<DebianPackages> {
  const { cacheDirectory } = search;
  const question = { packages: wanted.toSorted(), stamp: await stampOf(packageDatabase) };
  const isUsable = async ({ archives }: DebianPackages): Promise<boolean> =>
    (await Promise.all(archives.map(exists))).every(Boolean);
  return remembered({ cacheDirectory, question, schema: DebianPackages, isUsable }, () => ask(wanted, search));
}

async function ask(wanted: readonly string[], search: DebianSearch): Promise<DebianPackages> {
  const none = { packages: [], archives: [], missing: [...wanted] };
  if (wanted.length === 0 || !(await hasProgram("apt-cache", search))) return none;
  const { names, missing } = await resolveNames(wanted, search);
  const closure = await closureOf(names, search);
  const installed = await installedVersions([...closure.keys()], search);
  const absent = [...closure.keys()].filter((name) => !installed.has(name));
  const fetched = absent.length === 0 ? [] : await fetchArchives(absent, search);
  const archives = fetched.filter((path) => closure.has(nameOfArchive(path)) || isLibrary(nameOfArchive(path)));
  const packages = await Promise.all(
    [...closure].map(async ([name, available]): Promise<DebianPackage> => {
      const version = installed.get(name);
      const archive = archives.find((path) => nameOfArchive(path) === name);
      const paths = version === undefined ? await pathsOfArchive(archive, search) : await installedPaths(name, search);
      return { name, version: version ?? available, installed: version !== undefined, entries: topEntries(paths) };
    }),
  );
  return { packages: packages.toSorted((a, b) => a.name.localeCompare(b.name)), archives, missing };
}

/** The names that Debian gives these distributions, as far as it has them. */
async function resolveNames(
  wanted: readonly string[],
  search: DebianSearch,
): Promise<{ names: string[]; missing: string[] }> {
  const candidates = new Map(wanted.map((name) => [name, debianNames(name)]));
  const known = await stanzas([...new Set([...candidates.values()].flat())], search);
  const names: string[] = [];
  const missing: string[] = [];
  for (const [name, tries] of candidates) {
    const found = tries.find((candidate) => known.has(candidate));
    if (found === undefined) missing.push(name);
    else names.push(found);
  }
  return { names, missing };
}

/** Python packages that these depend on, themselves included, each with the version that is available. */
async function closureOf(names: readonly string[], search: DebianSearch): Promise<Map<string, string>> {
  const closure = new Map<string, string>();
  let next = [...new Set(names)];
  while (next.length > 0) {
    const found = await stanzas(next, search);
    const dependencies: string[] = [];
    for (const [name, { version, depends }] of found) {
      closure.set(name, version);
      dependencies.push(...depends);
    }
    next = [...new Set(dependencies)].filter((name) => isPythonPackage(name) && !closure.has(name));
  }
  return closure;
}

const isPythonPackage = (name: string): boolean =>
  (name.startsWith("python3-") || name.endsWith("-common") || name.startsWith("python-")) &&
  !interpreterPackages.test(name) &&
  !buildTools.has(name);

interface Stanza {
  version: string;
  depends: readonly string[];
}

/** What apt knows of these packages. Names that it does not know are left out. */
async function stanzas(names: readonly string[], search: DebianSearch): Promise<Map<string, Stanza>> {
  const { stdout } = await query("apt-cache", ["show", "--no-all-versions", ...names], search);
  return parseStanzas(stdout);
}

export function parseStanzas(text: string): Map<string, Stanza> {
  const found = new Map<string, Stanza>();
  for (const paragraph of text.split(/\n\n+/)) {
    const field = (name: string): string => new RegExp(`^${name}: (.*)$`, "m").exec(paragraph)?.[1] ?? "";
    const name = field("Package");
    if (name === "" || found.has(name)) continue;
    const depends = `${field("Pre-Depends")},${field("Depends")}`
      .split(",")
      // The first alternative is the one that a fresh installation gets.
      .map((entry) => /^\s*([a-z0-9][a-z0-9+.-]*)/.exec(entry)?.[1] ?? "")
      .filter((name) => name !== "");
    found.set(name, { version: field("Version"), depends });
  }
  return found;
}

async function installedVersions(names: readonly string[], search: DebianSearch): Promise<Map<string, string>> {
  const format = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\n";
  const { stdout } = await query("dpkg-query", ["--show", `--showformat=${format}`, ...names], search);
  const rows = stdout.split("\n").map((line) => line.split("\t"));
  return new Map(
    rows.flatMap(([name, version, status]) => {
      return name !== undefined && version !== undefined && status?.startsWith("ii") === true ? [[name, version]] : [];
    }),
  );
}

async function installedPaths(name: string, search: DebianSearch): Promise<string[]> {
  const { stdout } = await query("dpkg-query", ["--listfiles", name], search);
  return stdout.split("\n");
}

async function pathsOfArchive(archive: string | undefined, search: DebianSearch): Promise<string[]> {
  if (archive === undefined) return [];
  const { stdout } = await query("dpkg-deb", ["--contents", archive], search);
  return stdout.split("\n").map((line) => /\s\.(\/\S*?)\/?( -> .*)?$/.exec(line)?.[1] ?? "");
}

/** Names directly below the directory of packages. */
export function topEntries(paths: readonly string[]): string[] {
  const entries = new Set<string>();
  for (const path of paths) {
    if (!path.startsWith(`${distPackages}/`)) continue;
    const name = path.slice(distPackages.length + 1).split("/")[0] ?? "";
    if (name !== "" && name !== "__pycache__") entries.add(name);
  }
  return [...entries].toSorted();
}

/** An archive that has to be there: `python3-numpy`, `1:1.24.2-1`. */
interface Wanted {
  name: string;
  version: string;
}

/** Brings these packages, and what they need beyond the machine's own, into the cache. */
async function fetchArchives(names: readonly string[], search: DebianSearch): Promise<string[]> {
  const flags = ["install", "--simulate", "--no-install-recommends"];
  const { exitCode, stdout, stderr } = await query("apt-get", [...flags, ...names], search);
  if (exitCode !== 0) throw unavailable(names, stderr);
  const wanted = [...stdout.matchAll(/^Inst (\S+) (?:\[[^\]]*\] )?\((\S+) /gm)].map((match) => ({
    name: match[1] ?? "",
    version: match[2] ?? "",
  }));
  const directory = join(search.cacheDirectory, "debian");
  await mkdir(directory, { recursive: true });
  // Archives that apt itself has kept need no network.
  for (const archive of await findArchives(aptArchives, await lacking(directory, wanted))) {
    await copyFile(join(aptArchives, archive), join(directory, `.${archive}`));
    await rename(join(directory, `.${archive}`), join(directory, archive));
  }
  const absent = await lacking(directory, wanted);
  if (absent.length > 0) await download(directory, absent, search);
  return (await findArchives(directory, wanted)).map((file) => join(directory, file));
}

const archivePrefix = ({ name, version }: Wanted): string => `${name}_${version.replace(":", "%3a")}_`;

async function findArchives(directory: string, wanted: readonly Wanted[]): Promise<string[]> {
  const files = (await readdir(directory).catch(() => [])).filter((file) => file.endsWith(".deb"));
  return wanted.flatMap((one) => files.find((file) => file.startsWith(archivePrefix(one))) ?? []);
}

async function lacking(directory: string, wanted: readonly Wanted[]): Promise<Wanted[]> {
  const present = await findArchives(directory, wanted);
  return wanted.filter((one) => !present.some((file) => file.startsWith(archivePrefix(one))));
}

async function download(directory: string, wanted: readonly Wanted[], search: DebianSearch): Promise<void> {
  const temporary = await mkdtemp(join(directory, ".download-"));
  try {
    const packages = wanted.map(({ name, version }) => `${name}=${version}`);
    const { exitCode, stderr } = await run("apt-get", ["--option=APT::Sandbox::User=root", "download", ...packages], {
      signal: search.signal,
      timeoutMs: downloadTimeoutMs,
      cwd: temporary,
    });
    if (exitCode !== 0) throw unavailable(packages, stderr);
    for (const file of await readdir(temporary)) await rename(join(temporary, file), join(directory, file));
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

function unavailable(names: readonly string[], stderr: string): SandboxError {
  return new SandboxError("unavailable", `Cannot download packages of the distribution: ${stderr.trim()}`, {
    suggestion: `Install them on this machine: apt-get install ${names.join(" ")}`,
    details: { packages: names },
  });
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** Whether a package that is not in Python is needed at run time. */
const isLibrary = (name: string): boolean => !name.startsWith("python3-") && !name.endsWith("-dev");

const nameOfArchive = (path: string): string => (path.split("/").at(-1) ?? "").split("_")[0] ?? "";

async function hasProgram(name: string, search: DebianSearch): Promise<boolean> {
  try {
    await run(name, ["--version"], { signal: search.signal, timeoutMs: queryTimeoutMs });
    return true;
  } catch {
    search.signal.throwIfAborted();
    return false;
  }
}

async function query(program: string, args: readonly string[], { signal }: DebianSearch): Promise<RunResult> {
  return run(program, args, { signal, timeoutMs: queryTimeoutMs, maxOutputBytes });
}
