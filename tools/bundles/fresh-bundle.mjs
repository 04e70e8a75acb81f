import { createHash } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** A program that has a bundle: a package with a `src/main.ts`. @typedef {"cli" | "server"} ProgramName */

/**
 * The state of a file when it went into a bundle: size, time of the last change of its content, time of the last change
 * of its metadata, and a hash of its content.
 *
 * @typedef {[sizeBytes: number, mtimeMs: number, ctimeMs: number, sha256: string]} Stamp
 */

/** @typedef {{ directory: string, inputs: Record<string, Stamp> }} Manifest the inputs by path in the checkout */

const ownCheckout = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** @param {string} [checkout] */
export function bundleRoot(checkout = ownCheckout) {
  return join(checkout, ".cache", "bundles");
}

/**
 * @param {ProgramName} name
 * @param {string} [checkout]
 */
export function manifestPath(name, checkout) {
  return join(bundleRoot(checkout), `${name}.json`);
}

/**
 * Returns the bundle of a program if it was built from exactly the present sources. This runs before every command, so
 * it does not read files whose size and times are unchanged.
 *
 * @param {ProgramName} name
 * @param {string} [checkout]
 * @returns {string | undefined} the path of its entry
 */
export function freshBundle(name, checkout = ownCheckout) {
  try {
    /** @type {Manifest} */
    const { directory, inputs } = JSON.parse(readFileSync(manifestPath(name, checkout), "utf8"));
    const entry = join(bundleRoot(checkout), directory, "main.mjs");
    statSync(entry);
    return Object.entries(inputs).every(([path, stamp]) => isUnchanged(join(checkout, path), stamp))
      ? entry
      : undefined;
  } catch {
    // The manifest is missing or cut short, or a source is missing: no bundle belongs to these sources.
    return undefined;
  }
}

/**
 * @param {string} path
 * @param {Stamp} stamp
 */
function isUnchanged(path, [sizeBytes, mtimeMs, ctimeMs, sha256]) {
  const now = statSync(path);
  if (now.size !== sizeBytes) return false;
  // A new checkout of the same content, or a copy of the clone, changes only the times.
  return (now.mtimeMs === mtimeMs && now.ctimeMs === ctimeMs) || hashOf(readFileSync(path)) === sha256;
}

/** @param {Buffer} content */
export function hashOf(content) {
  return createHash("sha256").update(content).digest("hex");
}
