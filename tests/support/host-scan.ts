/**
 * When an engine starts for the first time on a data directory, it scans the host's files and makes a template of about
 * a thousand files, which takes a second, and keeps both in the data directory. This module does that once per run and
 * copies the result into each new data directory, as if an engine had run there before.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { programPath } from "./programs/test-programs.ts";
import { testRoot } from "./test-root.ts";

const scansDir = (): string => join(testRoot(), "host-scan");

/** Copies the scan into a new data directory; a directory that was used before stays unchanged. */
export function copyHostScan(dataDir: string): void {
  const templates = join(dataDir, "templates");
  if (existsSync(templates) || !existsSync(scansDir())) return;
  mkdirSync(templates, { recursive: true });
  for (const name of readdirSync(scansDir())) {
    const [made, here] = [join(scansDir(), name), join(templates, name)];
    // A template never changes, so all engines can share one.
    if (name.startsWith("host-")) symlinkSync(made, here);
    else cpSync(made, here);
  }
}

/** Vitest calls this before the first test. */
export function setup(): void {
  mkdirSync(testRoot(), { recursive: true });
  const dataDir = mkdtempSync(join(testRoot(), "scanned-"));
  execFileSync(process.execPath, [programPath("scan-host"), dataDir], { stdio: "inherit" });
  renameSync(join(dataDir, "templates"), scansDir());
  rmSync(dataDir, { recursive: true, force: true });
}
