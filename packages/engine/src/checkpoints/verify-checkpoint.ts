import { access } from "node:fs/promises";
import { SandboxError, type CheckpointManifest } from "@atoll/protocol";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { CheckpointStore } from "./checkpoint-store.ts";

/** Rejects with `unrestorable` unless everything that is needed is there, unchanged, and this machine can run it. */
export async function verifyCheckpoint(
  context: EngineContext,
  life: SandboxLife,
  n: number,
  { memory, signal }: { memory: boolean; signal: AbortSignal },
): Promise<CheckpointManifest> {
  const store = new CheckpointStore(life.parts.layout);
  const manifest = await store.read(n);
  if (memory) await assertMachineFits(context, life, manifest);
  await Promise.all([
    memory ? store.verifyMemory(manifest) : undefined,
    ...manifest.layers.map((part) => context.layers.verify(part, signal)),
  ]);
  return manifest;
}

async function assertMachineFits(
  context: EngineContext,
  life: SandboxLife,
  manifest: CheckpointManifest,
): Promise<void> {
  const { n, runtime, cpuFeatures, guest } = manifest;
  const refuse = (because: string, details: Record<string, unknown>): SandboxError =>
    new SandboxError("unrestorable", `Cannot restore checkpoint ${n} on this machine: ${because}`, {
      suggestion: "Resume it on a machine that has it, or start afresh on the saved files with memory: false.",
      details: { checkpoint: n, ...details },
    });
  const { freezer } = life.parts.driver;
  if (freezer === undefined) throw refuse("its driver cannot restore memory", {});
  if (freezer.runtime.version !== runtime.version) {
    const here = freezer.runtime.version;
    throw refuse(`it was saved by runsc ${runtime.version}, and here is ${here}`, { needed: runtime.version, here });
  }
  const present = new Set(await context.readCpuFeatures());
  const lacking = cpuFeatures.filter((feature) => !present.has(feature));
  if (lacking.length > 0) throw refuse(`its processor lacks ${lacking.join(", ")}`, { lacking });
  const hasGuest = await access(context.layout.guestLayer(guest)).then(
    () => true,
    () => false,
  );
  if (!hasGuest) throw refuse(`guest ${guest} is not there`, { guest });
}
