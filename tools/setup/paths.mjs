import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

export function cacheRoot() {
  const base = process.env["ATOLL_CACHE_DIR"] || process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  return join(resolve(base), "atoll");
}

export function setupLockPath() {
  return join(cacheRoot(), "setup.lock");
}
