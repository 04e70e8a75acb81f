import { z } from "zod";
import type { RepositoryTree } from "../../repository/repository-tree.ts";

/** How the dependencies of a repository are installed. */
export interface PackageManager {
  name: "npm" | "pnpm" | "yarn";
  /** What has to be installed first: a package and its version. npm comes with Node. */
  tool: string | undefined;
  /** Commands to try in order until one succeeds. None runs scripts of packages: their downloads would fail. */
  attempts: readonly (readonly string[])[];
}

const Manifest = z.looseObject({
  packageManager: z.string().optional().catch(undefined),
});

const npmQuiet = ["--ignore-scripts", "--no-audit", "--no-fund"];

export async function choosePackageManager(tree: RepositoryTree): Promise<PackageManager> {
  const names = await tree.list("");
  const { packageManager = "" } = await readManifest(tree);
  const [, asked, version] = /^(npm|pnpm|yarn)@([\w.-]+)/.exec(packageManager) ?? [];
  if (asked === "pnpm" || (asked === undefined && names.includes("pnpm-lock.yaml"))) return pnpm(version ?? "9");
  if (asked === "yarn" || (asked === undefined && isYarn(names))) {
    return yarn(version ?? (names.includes(".yarnrc.yml") ? "4" : "1"));
  }
  const hasLock = names.includes("package-lock.json") || names.includes("npm-shrinkwrap.json");
  return npm(hasLock);
}

async function readManifest(tree: RepositoryTree): Promise<z.infer<typeof Manifest>> {
  try {
    return Manifest.parse(JSON.parse((await tree.read("package.json")) ?? "{}"));
  } catch {
    return {};
  }
}

const isYarn = (names: readonly string[]): boolean =>
  names.includes("yarn.lock") && !names.includes("package-lock.json");

function npm(hasLock: boolean): PackageManager {
  // Nothing of the work tree is changed: a lock file that npm has rewritten would stand in the way of a patch.
  const install = ["npm", "install", "--no-save", ...npmQuiet];
  const attempts = [...(hasLock ? [["npm", "ci", ...npmQuiet]] : []), install, [...install, "--legacy-peer-deps"]];
  return { name: "npm", tool: undefined, attempts };
}

function pnpm(version: string): PackageManager {
  const install = ["pnpm", "install", "--ignore-scripts"];
  const attempts = [
    [...install, "--frozen-lockfile"],
    [...install, "--no-frozen-lockfile"],
  ];
  return { name: "pnpm", tool: `pnpm@${version}`, attempts };
}

function yarn(version: string): PackageManager {
  if (!version.startsWith("1")) {
    const install = ["yarn", "install"];
    const attempts = [
      [...install, "--immutable", "--mode=skip-build"],
      [...install, "--mode=skip-build"],
    ];
    return { name: "yarn", tool: `@yarnpkg/cli-dist@${version}`, attempts };
  }
  const install = ["yarn", "install", "--ignore-scripts", "--ignore-engines", "--non-interactive"];
  return { name: "yarn", tool: `yarn@${version}`, attempts: [[...install, "--frozen-lockfile"], install] };
}

/** Packages that a patch adds to package.json, as `name@range`: the tests of what it changes need them. */
export function addedDependencies(patch: string): string[] {
  const added: string[] = [];
  const removed = new Set<string>();
  let isManifest = false;
  for (const line of patch.split("\n")) {
    const header = /^diff --git a\/.+ b\/(.+)$/.exec(line);
    if (header !== null) isManifest = /(^|\/)package\.json$/.test(header[1] ?? "");
    const [, sign, name, range] = /^([+-])\s*"(@?[\w./-]+)":\s*"([\^~><=]*\d[\w.^~><=| -]*)",?\s*$/.exec(line) ?? [];
    if (!isManifest || name === undefined || name === "version") continue;
    if (sign === "+") added.push(`${name}@${range}`);
    else removed.add(`${name}@${range}`);
  }
  return added.filter((dependency) => !removed.has(dependency));
}
