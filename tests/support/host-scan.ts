/**
 * What the engine finds out about the host's files when it is first started on a data directory takes a second, and is
 * kept there; so does the template that it makes of them, a thousand files. Tests begin with what was made once per
 * run, as an engine does that was started there before.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { programPath } from "./programs/test-programs.ts";
import { testRoot } from "./test-root.ts";

const scansDir = (): string => join(testRoot(), "host-scan");

/** For a new data directory; one that was used keeps what it has. */
export function bringHostScan(dataDir: string): void {
  const templates = join(dataDir, "templates");
  if (existsSync(templates) || !existsSync(scansDir())) return;
  mkdirSync(templates, { recursive: true });
  for (const name of readdirSync(scansDir())) {
    const [made, here] = [join(scansDir(), name), join(templates, name)];
    // A template never changes, so all can have the same one.
    if (name.startsWith("host-")) symlinkSync(made, here);
    else cpSync(made, here);
  }
}

/** Called by vitest before the first test. */
export function setup(): void {
  mkdirSync(testRoot(), { recursive: true });
  const dataDir = mkdtempSync(join(testRoot(), "scanned-"));
  execFileSync(process.execPath, [programPath("scan-host"), dataDir], { stdio: "inherit" });
  renameSync(join(dataDir, "templates"), scansDir());
  rmSync(dataDir, { recursive: true, force: true });
}
