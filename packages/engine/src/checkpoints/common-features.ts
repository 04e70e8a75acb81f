import { SandboxError } from "@atoll/protocol";
import type { Runsc } from "../doctor/runsc-features.ts";

/**
 * For machines whose processors differ: sandboxes see these features and no others, so that each can go on on any of them. Rejects with `unsupported`, naming what is missing,
 * unless this processor has them all and this runsc can hide the rest. Where there is no rest, any runsc will do.
 */
export async function assertCanLimitFeatures(
  wanted: readonly string[],
  {
    runsc,
    readCpuFeatures,
  }: { runsc: Pick<Runsc, "path" | "version" | "subcommands">; readCpuFeatures: () => Promise<string[]> },
): Promise<void> {
  const present = new Set(await readCpuFeatures());
  const lacking = wanted.filter((feature) => !present.has(feature));
  if (lacking.length > 0) {
    throw new SandboxError("unsupported", `Cannot use cpuFeatures: this processor lacks ${lacking.join(", ")}`, {
      suggestion: "Name features that every machine has, as in /proc/cpuinfo.",
      details: { lacking },
    });
  }
  const hidden = [...present].filter((feature) => !wanted.includes(feature));
  // It came together with the annotation that hides features.
  if (hidden.length === 0 || runsc.subcommands.has("cpu-features")) return;
  const { path, version } = runsc;
  throw new SandboxError(
    "unsupported",
    `Cannot use cpuFeatures: ${path} (${version}) cannot hide ${hidden.join(", ")}`,
    {
      suggestion:
        "Leave the setting out, name all features of this processor, or install a runsc whose `runsc help` lists cpu-features; releases of 2025 and later have it.",
      details: { runsc: version, hidden },
    },
  );
}
