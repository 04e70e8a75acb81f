import { access } from "node:fs/promises";
import { SandboxError, type CheckpointManifest, type MachineNeeds } from "@atoll/protocol";
import type { Driver } from "../drivers/driver.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { CheckpointStore } from "./checkpoint-store.ts";
import { processorFeatures } from "./cpu-features.ts";

interface VerifyOptions {
  /** Whether the memory of the checkpoint will be used, or its files alone. */
  memory: boolean;
  signal: AbortSignal;
}

/** Rejects with `unrestorable` unless every needed part exists unchanged, and this machine can run it. */
export async function verifyCheckpoint(
  context: EngineContext,
  life: SandboxLife,
  n: number,
  options: VerifyOptions,
): Promise<CheckpointManifest> {
  const manifest = await readCheckpoint(context, life, n, options);
  await verifyParts(context, life, manifest, options);
  return manifest;
}

/** Rejects with `unrestorable` unless the checkpoint exists and this machine can run it. Its parts are not read. */
export async function readCheckpoint(
  context: EngineContext,
  life: SandboxLife,
  n: number,
  { memory }: Pick<VerifyOptions, "memory">,
): Promise<CheckpointManifest> {
  const manifest = await new CheckpointStore(life.parts.layout).read(n);
  if (memory) await assertMachineFits(context, life.parts.driver, manifest, ofCheckpoint(n));
  return manifest;
}

/** Rejects with `unrestorable` unless every needed part exists unchanged. */
export async function verifyParts(
  context: EngineContext,
  life: SandboxLife,
  manifest: CheckpointManifest,
  { memory, signal }: VerifyOptions,
): Promise<void> {
  await Promise.all([
    memory ? new CheckpointStore(life.parts.layout).verifyMemory(manifest) : undefined,
    context.layers.verify(manifest.layers, signal),
  ]);
}

/** The operation that a machine must be able to do, for the error message if it cannot. */
export interface RestoreAction {
  /** The action completes "Cannot … on this machine", for example "restore checkpoint 1". */
  action: string;
  details: Record<string, unknown>;
  /** The suggestion of the error, if the operation is no resume. */
  suggestion?: string;
}

export const ofCheckpoint = (n: number): RestoreAction => ({
  action: `restore checkpoint ${n}`,
  details: { checkpoint: n },
});

/** Rejects with `unrestorable`, naming what this machine lacks, unless it can restore this memory. */
export async function assertMachineFits(
  context: EngineContext,
  { freezer }: Pick<Driver, "freezer">,
  { runtime, cpuFeatures, guest }: MachineNeeds,
  asked: RestoreAction,
): Promise<void> {
  const refuse = (because: string, details: Record<string, unknown>): SandboxError =>
    new SandboxError("unrestorable", `Cannot ${asked.action} on this machine: ${because}`, {
      suggestion: asked.suggestion ?? "Resume it on a machine that has it, or resume it here with memory: false.",
      details: { ...asked.details, ...details },
    });
  if (freezer === undefined) throw refuse("its driver cannot restore memory", {});
  if (freezer.version !== runtime.version) {
    const here = freezer.version;
    const because = `it was saved by runsc ${runtime.version}, and this machine has ${here}`;
    throw refuse(because, { needed: runtime.version, here });
  }
  if (!freezer.platforms.includes(runtime.platform)) {
    throw refuse(`it needs gVisor's platform ${runtime.platform}`, {
      needed: runtime.platform,
      here: freezer.platforms,
    });
  }
  const present = new Set(await context.readCpuFeatures());
  const lacking = processorFeatures(cpuFeatures).filter((feature) => !present.has(feature));
  if (lacking.length > 0) throw refuse(`its processor lacks ${lacking.join(", ")}`, { lacking });
  const hasGuest = await access(context.layout.guestLayer(guest)).then(
    () => true,
    () => false,
  );
  if (!hasGuest) throw refuse(`it has no guest ${guest}`, { guest });
}
