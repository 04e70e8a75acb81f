import { lstat, readFile, realpath } from "node:fs/promises";
import { dirname, join } from "node:path";
import { hasErrno } from "@atoll/host";

/** These folders of an app or of a package are not part of it. */
const skipped = new Set(["node_modules", ".git"]);

interface Manifest {
  dependencies?: Record<string, string>;
  optionalDependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
}

/**
 * The paths that an app needs to run elsewhere: its folder, and the npm packages that its `package.json` names, with
 * what those need. Packages are found as Node finds them; a link to a package comes with the folder that it leads to.
 */
export async function appFiles(folder: string): Promise<Set<string>> {
  const found = new Set([folder]);
  const waiting = [folder];
  for (let from = waiting.pop(); from !== undefined; from = waiting.pop()) {
    for (const name of await dependenciesOf(from)) {
      const path = await findPackage(name, from);
      if (path === undefined) continue;
      const real = await realpath(path);
      if (!found.has(real)) waiting.push(real);
      found.add(path).add(real);
    }
  }
  return found;
}

/** Makes a filter for an archive of everything: it keeps what leads to the wanted paths, and what is in them. */
export function includesOnly(wanted: ReadonlySet<string>): (path: string) => boolean {
  const above = new Set<string>();
  for (const path of wanted) for (let up = path; up !== dirname(up); up = dirname(up)) above.add(up);
  return (relative) => {
    const path = `/${relative}`;
    if (above.has(path)) return true;
    let up = dirname(path);
    while (!wanted.has(up) && up !== "/") up = dirname(up);
    if (!wanted.has(up)) return false;
    return !path
      .slice(up.length + 1)
      .split("/")
      .some((name) => skipped.has(name));
  };
}

async function dependenciesOf(folder: string): Promise<string[]> {
  let text: string;
  try {
    text = await readFile(join(folder, "package.json"), "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
  const { dependencies, optionalDependencies, peerDependencies } = JSON.parse(text) as Manifest;
  return Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies });
}

async function findPackage(name: string, from: string): Promise<string | undefined> {
  for (let folder = from; ; folder = dirname(folder)) {
    const path = join(folder, "node_modules", name);
    if (await exists(path)) return path;
    if (folder === dirname(folder)) return undefined;
  }
}

const exists = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => true,
    () => false,
  );
