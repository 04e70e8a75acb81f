import { z } from "zod";

/** From what is worth a look to what no honest code does. */
const severities = ["low", "medium", "high", "critical"] as const;

/** What a static scan found at one place of a source. It is a hint: what is not found is not therefore harmless. */
export const Finding = z.strictObject({
  file: z.string(),
  /** Both are counted from 1. */
  line: z.int(),
  column: z.int(),
  severity: z.enum(severities),
  rule: z.enum([
    "unscannable",
    "syntax_error",
    "dynamic_code",
    "start_process",
    "file_access",
    "network_access",
    "threads",
    "native_code",
    "prototype_escape",
    "environment",
    "module_loading",
    "restricted_module",
    "computed_access",
    "endless_loop",
    "slow_expression",
  ]),
  /** What the code can do there. */
  why: z.string(),
  /** What to do about it. */
  fix: z.string(),
});
export type Finding = z.infer<typeof Finding>;
export type Severity = Finding["severity"];

/** The severity of the worst of some findings; `undefined` if there are none. */
export const worstOf = (findings: readonly Finding[]): Severity | undefined =>
  severities[Math.max(-1, ...findings.map(({ severity }) => severities.indexOf(severity)))];
