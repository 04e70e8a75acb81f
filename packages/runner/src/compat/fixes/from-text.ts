import type { CompatFix } from "../compat-fix.ts";

const maxSymptomLength = 200;

/** A fix whose symptom is a text in the output. */
export const fromText = (pattern: RegExp): Pick<CompatFix, "detect"> => ({
  detect: ({ text }) => pattern.exec(text)?.[0].trim().slice(0, maxSymptomLength),
});
