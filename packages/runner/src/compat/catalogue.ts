import type { CompatFix } from "./compat-fix.ts";
import { interpreterFixes } from "./fixes/interpreter-fixes.ts";
import { networkFixes } from "./fixes/network-fixes.ts";
import { nodeFixes } from "./fixes/node-fixes.ts";
import { packageFixes } from "./fixes/package-fixes.ts";
import { shimFixes } from "./fixes/shim-fixes.ts";

/** Every fix that the runner knows. */
export const catalogue: readonly CompatFix[] = [
  ...shimFixes,
  ...packageFixes,
  ...interpreterFixes,
  ...networkFixes,
  ...nodeFixes,
];
