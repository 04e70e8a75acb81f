import { lstat, readdir, readFile, readlink } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno } from "@atoll/host";
import type { SkeletonEntry } from "./skeleton.ts";

/**
 * The part of the host's /etc that a sandbox sees. A file is on the list when common programs need it and it has
 * nothing about this particular host: no tokens (npmrc, pip.conf, gitconfig, environment), no names of machines or
 * people, no keys. Directories come with their contents. A file that not every user may read stays out in any case.
 */
const allowed: readonly string[] = [
  "alternatives",
  "ca-certificates",
  "ca-certificates.conf",
  "crypto-policies",
  "debian_version",
  "ethertypes",
  "fonts",
  "gai.conf",
  "host.conf",
  "inputrc",
  "ld.so.cache",
  "ld.so.conf",
  "ld.so.conf.d",
  "locale.alias",
  "localtime",
  "login.defs",
  "lsb-release",
  "magic",
  "magic.mime",
  "mime.types",
  "os-release",
  "perl",
  "pki/ca-trust",
  "pki/tls/certs",
  "protocols",
  "rpc",
  "services",
  "shells",
  "ssl/certs",
  "ssl/openssl.cnf",
  "terminfo",
  "timezone",
  "vim",
];

/** Patterns as `allowed`, for names that contain a version. */
const allowedPatterns: readonly RegExp[] = [/^python3(\.\d+)?$/, /^java-\d+-openjdk$/, /^ImageMagick-\d$/];

/** A larger file is not configuration. */
const mostBytes = 4 * 1024 * 1024;

/**
 * Returns the entries below `etc/` that are taken from the host, parents first. All of them belong to root, also if
 * they do not on the host.
 */
export async function readAllowedEtc(hostEtc: string): Promise<SkeletonEntry[]> {
  const present = await readdir(hostEtc);
  const versioned = present.filter((name) => allowedPatterns.some((pattern) => pattern.test(name)));
  const entries: SkeletonEntry[] = [];
  const parents = new Set<string>();
  for (const path of [...allowed, ...versioned].toSorted()) {
    const found = await readEntries(hostEtc, path);
    if (found.length === 0) continue;
    for (const parent of parentsOf(path)) {
      if (!parents.has(parent)) entries.push(directory(parent));
      parents.add(parent);
    }
    entries.push(...found);
  }
  return entries;
}

async function readEntries(hostEtc: string, path: string): Promise<SkeletonEntry[]> {
  const source = join(hostEtc, path);
  try {
    const stats = await lstat(source);
    const { mode, size } = stats;
    if (stats.isSymbolicLink()) return [{ kind: "link", path: `etc/${path}`, target: await readlink(source) }];
    const isWorldReadable = (mode & 0o004) !== 0;
    if (stats.isFile() && isWorldReadable && size <= mostBytes) {
      const content = await readFile(source);
      return [{ kind: "file", path: `etc/${path}`, content, mode: mode & 0o755, uid: 0, gid: 0 }];
    }
    if (!stats.isDirectory() || !isWorldReadable) return [];
    const names = (await readdir(source)).toSorted();
    const below = await Promise.all(names.map((name) => readEntries(hostEtc, join(path, name))));
    return [directory(path), ...below.flat()];
  } catch (error) {
    if (hasErrno(error, "ENOENT", "EACCES")) return [];
    throw error;
  }
}

function parentsOf(path: string): string[] {
  const parts = path.split("/").slice(0, -1);
  return parts.map((_, index) => parts.slice(0, index + 1).join("/"));
}

function directory(path: string): SkeletonEntry {
  return { kind: "directory", path: `etc/${path}`, mode: 0o755, uid: 0, gid: 0 };
}
