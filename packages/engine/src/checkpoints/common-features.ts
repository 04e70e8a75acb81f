import { SandboxError } from "@atoll/protocol";
import type { Runsc } from "../doctor/runsc-features.ts";
import { processorFeatures, trapsCpuid } from "./cpu-features.ts";

interface Machine {
  runsc: Pick<Runsc, "path" | "version" | "subcommands">;
  /** Of its processors, as the kernel tells them. */
  cpuFlags: readonly string[];
  /** Those that this runsc knows by name, and this processor has. */
  askRunsc: () => Promise<string[]>;
}

/**
 * For machines whose processors differ: sandboxes see the wanted features and no others, so that each can go on on any
 * of them. Resolves with what runsc has to be told to show, or with nothing where it need not be told. Rejects with
 * `unsupported`, naming what is missing, unless this processor has all of them and the rest can be hidden from
 * programs. Where there is no rest, any runsc will do.
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
  // It came together with the annotation that hides features.
  const canHide = runsc.subcommands.has("cpu-features");
  if (hidden.length === 0 && !canHide) return undefined;
  const name = `${runsc.path} (${runsc.version})`;
  const details = { runsc: runsc.version, hidden };
  if (!canHide) {
    throw refusal(`${name} cannot hide ${hidden.join(", ")}`, {
      suggestion: `Leave the setting out, name all features of this processor, or install a runsc whose \`runsc help\` lists cpu-features; releases of late 2025 and newer have it.`,
      details,
    });
  }
  // runsc would hide them in /proc/cpuinfo only, and programs that ask the processor itself would find them.
  if (hidden.length > 0 && !present.has(trapsCpuid)) {
    throw refusal(`this processor tells programs of ${hidden.join(", ")} whatever runsc says`, {
      suggestion: `Leave the setting out, name all features of this processor, or use one with ${trapsCpuid} in /proc/cpuinfo.`,
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
  // Not just what is wanted: runsc also has names for what the kernel does not show, and programs look for some of it
  // before they use the rest.
  return known.filter((feature) => !hidden.includes(feature));
}

function refusal(because: string, options: { suggestion: string; details: Record<string, unknown> }): SandboxError {
  return new SandboxError("unsupported", `Cannot use cpuFeatures: ${because}`, options);
}
