/**
 * What the engine finds out about the host's files when it is first started on a data directory takes a second, and is kept there. Tests begin with what
 * was found out once per run, as an engine does that was started there before.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { programPath } from "./programs/test-programs.ts";
import { testRoot } from "./test-root.ts";

const scansDir = (): string => join(testRoot(), "host-scan");

/** For a new data directory; one that was used keeps what it has. */
export function bringHostScan(dataDir: string): void {
  const templates = join(dataDir, "templates");
  if (existsSync(templates) || !existsSync(scansDir())) return;
  cpSync(scansDir(), templates, { recursive: true });
}

/** Called by vitest before the first test. */
export function setup(): void {
  mkdirSync(testRoot(), { recursive: true });
  const dataDir = mkdtempSync(join(testRoot(), "scanned-"));
  execFileSync(process.execPath, [programPath("scan-host"), dataDir], { stdio: "inherit" });
  for (const name of readdirSync(join(dataDir, "templates"))) {
    if (name.startsWith("scan-")) cpSync(join(dataDir, "templates", name), join(scansDir(), name));
  }
  rmSync(dataDir, { recursive: true, force: true });
}
