import { messageOf, run } from "@atoll/host";
import { z } from "zod";
import { Finding } from "./finding.ts";
import { pythonProgram } from "./python-program.ts";
import { unscannable } from "./scan-module.ts";

/** The sources of one run of Python. */
const maxBytes = 8 * 1024 * 1024;
const timeoutMs = 10_000;
/** A source can make Python's parser need a lot of memory, or end it. */
const limited = 'ulimit -c 0; ulimit -v 1048576; exec "$1" -I -S -c "$2"';

const { shape } = Finding;
const Rows = z
  .array(z.tuple([shape.file, z.int().min(1), z.int().min(1), shape.severity, shape.rule, z.string().max(1_000)]))
  .max(100_000);

const fixes: Partial<Record<Finding["rule"], string>> = {
  dynamic_code: "Parse the input instead, for example with json.loads or ast.literal_eval.",
  endless_loop: "Give the loop an end.",
  syntax_error: "Repair it, or do not run it.",
  unscannable: "Read the code before you run it.",
};
const usualFix = "Run it in a sandbox whose profile allows no more than the code needs.";

/**
 * Scans sources of Python with the parser of the Python that is installed, in a process of its own. What it cannot
 * scan, all of it where there is no Python, is reported as such.
 */
export async function scanPython(
  files: ReadonlyMap<string, string>,
  signal: AbortSignal,
  program = "python3",
): Promise<Finding[]> {
  if (files.size === 0) return [];
  const findings: Finding[] = [];
  const scanned: [file: string, source: string][] = [];
  let bytes = 0;
  for (const [file, source] of files) {
    bytes += Buffer.byteLength(source);
    if (bytes <= maxBytes) scanned.push([file, source]);
    else findings.push(unscannable(file, `there is more than ${maxBytes / 1024 / 1024} MiB of Python`));
  }
  const rows = await runPython(program, scanned, signal);
  if ("failure" in rows) return [...findings, ...scanned.map(([file]) => unscannable(file, rows.failure))];
  for (const [file, line, column, severity, rule, why] of rows.found) {
    findings.push({ file, line, column, severity, rule, why, fix: fixes[rule] ?? usualFix });
  }
  return findings;
}

async function runPython(
  program: string,
  files: readonly (readonly [string, string])[],
  signal: AbortSignal,
): Promise<{ found: z.output<typeof Rows> } | { failure: string }> {
  const options = { signal, timeoutMs, input: JSON.stringify(files), maxOutputBytes: maxBytes };
  try {
    const { exitCode, stdout, stderr } = await run("/bin/sh", ["-c", limited, "sh", program, pythonProgram], options);
    if (exitCode === 127) return { failure: `there is no ${program} on this machine` };
    if (exitCode === 0) return { found: Rows.parse(JSON.parse(stdout)) };
    if (files.length <= 1) return { failure: `Python ended with ${exitCode ?? "a signal"}: ${stderr.slice(-200)}` };
  } catch (error) {
    signal.throwIfAborted();
    if (files.length <= 1) return { failure: messageOf(error) };
  }
  // One of them ended Python: each half is tried by itself, so that the others are scanned.
  const middle = Math.ceil(files.length / 2);
  const found: z.output<typeof Rows> = [];
  for (const half of [files.slice(0, middle), files.slice(middle)]) {
    const rows = await runPython(program, half, signal);
    if ("found" in rows) found.push(...rows.found);
    else
      for (const [file] of half)
        found.push([file, 1, 1, "high", "unscannable", `Cannot scan ${file}: ${rows.failure}`]);
  }
  return { found };
}
