import { SandboxError } from "@atoll/protocol";
import type { Runsc } from "../doctor/runsc-features.ts";
import { processorFeatures, trapsCpuid } from "./cpu-features.ts";

interface Machine {
  runsc: Pick<Runsc, "path" | "version" | "subcommands">;
  /** The features of the machine's processors, as the kernel reports them. */
  cpuFlags: readonly string[];
  /** Returns the features that this runsc knows by name and this processor has. */
  askRunsc: () => Promise<string[]>;
}

/**
 * For machines whose processors differ: sandboxes see the wanted features and no others, so that each sandbox can run
 * on any of the machines. Resolves to the features that runsc must show, or to undefined where nothing must be hidden.
 * Rejects with `unsupported`, naming what is missing, unless this processor has all wanted features and the others can
 * be hidden from programs. Where there are no others, any runsc will do.
 */
export async function limitFeatures(
  wanted: readonly string[],
  { runsc, cpuFlags, askRunsc }: Machine,
): Promise<string[] | undefined> {
  const present = new Set(cpuFlags);
  const lacking = processorFeatures(wanted).filter((feature) => !present.has(feature));
  if (lacking.length > 0) {
    throw refusal(`this processor lacks ${lacking.join(", ")}`, {
      suggestion: "Name features that every machine has, as in /proc/cpuinfo.",
      details: { lacking },
    });
  }
  const hidden = processorFeatures(cpuFlags).filter((feature) => !wanted.includes(feature));
  // The subcommand came together with the annotation that hides features.
  const canHide = runsc.subcommands.has("cpu-features");
  if (hidden.length === 0 && !canHide) return undefined;
  const name = `${runsc.path} (${runsc.version})`;
  const details = { runsc: runsc.version, hidden };
  if (!canHide) {
    throw refusal(`${name} cannot hide ${hidden.join(", ")}`, {
      suggestion:
        "Leave the setting out, name all features of this processor, or install a runsc " +
        "whose `runsc help` lists cpu-features: a release of late 2025 or newer.",
      details,
    });
  }
  // runsc would hide them in /proc/cpuinfo only, and programs that ask the processor itself would find them.
  if (hidden.length > 0 && !present.has(trapsCpuid)) {
    throw refusal(`this processor shows programs ${hidden.join(", ")} whatever runsc hides`, {
      suggestion:
        "Leave the setting out, name all features of this processor, " +
        `or use a processor with ${trapsCpuid} in /proc/cpuinfo.`,
      details,
    });
  }
  const known = await askRunsc();
  const unknown = hidden.filter((feature) => !known.includes(feature));
  if (unknown.length > 0) {
    throw refusal(`${name} does not know ${unknown.join(", ")}, so it cannot hide them`, {
      suggestion: "Add them to the setting if every machine has them, or install a newer runsc.",
      details: { ...details, unknown },
    });
  }
  // The result is more than the wanted features: runsc also has names for features that the kernel does not show, and
  // programs check for some of those before they use the others.
  return known.filter((feature) => !hidden.includes(feature));
}

function refusal(because: string, options: { suggestion: string; details: Record<string, unknown> }): SandboxError {
  return new SandboxError("unsupported", `Cannot use cpuFeatures: ${because}`, options);
}
