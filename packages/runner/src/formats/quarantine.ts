import { z } from "zod";
import { check, readTextFile } from "./source.ts";
import { readSource } from "./task-file.ts";

/** Reads ids of tests that are known to be flaky: a list in JSON or YAML, or one per line with `#` before a remark. */
export async function readQuarantine(path: string): Promise<string[]> {
  if (/\.(?:json|ya?ml)$/i.test(path)) return check(z.array(z.string()), await readSource(path));
  const lines = (await readTextFile(path)).split(/\r?\n/);
  return lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
}
