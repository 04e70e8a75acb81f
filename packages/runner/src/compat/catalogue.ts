import type { CompatFix } from "./compat-fix.ts";

/** Every fix that the runner knows. */
export const catalogue: readonly CompatFix[] = [];
