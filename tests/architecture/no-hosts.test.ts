import { expect, test } from "vitest";
import { listFiles, readText } from "./repository.ts";

/**
 * The machine decides where packages come from. The names are written in parts, so that this file passes its own test.
 */
const packageHosts = [
  ["registry", "npmjs", "org"],
  ["registry", "npmmirror", "com"],
  ["registry", "yarnpkg", "com"],
  ["npm", "pkg", "github", "com"],
  ["deb", "debian", "org"],
  ["ftp", "debian", "org"],
  ["security", "debian", "org"],
  ["snapshot", "debian", "org"],
  ["archive", "ubuntu", "com"],
  ["pkg", "dev"],
].map((parts) => parts.join("."));

test("no file names a host that serves packages", () => {
  const named = listFiles().flatMap((path) => {
    const text = readText(path);
    return packageHosts.filter((host) => text.includes(host)).map((host) => `${path}: ${host}`);
  });
  expect(named).toEqual([]);
});

test("the lock file records no download address", () => {
  const lock: { packages: Record<string, { resolved?: string; link?: boolean }> } = JSON.parse(
    readText("package-lock.json"),
  );
  const resolved = Object.entries(lock.packages).filter(([, entry]) => entry.resolved !== undefined && !entry.link);
  expect(resolved).toEqual([]);
});

test("the npm configuration names no registry", () => {
  expect(readText(".npmrc")).not.toMatch(/registry\s*=\s*\S*\/\//);
});
