import type { Finding } from "./finding.ts";
import { scanModule } from "./scan-module.ts";
import { scanPython } from "./scan-python.ts";

/**
 * Scans sources by file name: JavaScript, TypeScript and Python; others are left out. JavaScript is parsed in this
 * process, which a hostile source can end, so call this in one that may.
 */
export async function scan(
  files: ReadonlyMap<string, string>,
  signal: AbortSignal = new AbortController().signal,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const python = new Map<string, string>();
  for (const [file, source] of files) {
    if (/\.pyi?$/.test(file)) python.set(file, source);
    else if (/\.[cm]?[jt]sx?$/.test(file)) findings.push(...scanModule(file, source));
  }
  return [...findings, ...(await scanPython(python, signal))];
}
