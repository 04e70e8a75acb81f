import {
  isSandboxError,
  SandboxError,
  TemplateName,
  type ImportedRecord,
  type MachineNeeds,
  type SandboxRecord,
} from "@atoll/protocol";
import { CheckpointStore } from "../checkpoints/checkpoint-store.ts";
import { needsOf } from "../checkpoints/launch-source.ts";
import { assertMachineFits, type RestoreAction } from "../checkpoints/verify-checkpoint.ts";
import type { EngineContext } from "../engine-context.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { isHostTemplateName } from "../templates/host-template.ts";
import type { Template } from "../templates/template.ts";

export interface NeedsOptions {
  /** The checkpoint to restore; by default the one that the sandbox depends on. */
  checkpoint?: number | undefined;
  /** With false, the sandbox is started from its files alone. */
  memory?: boolean | undefined;
}

/**
 * Returns what another machine must have to restore the memory of a sandbox that runs here, or is about to. Returns
 * undefined if its memory cannot be saved.
 */
export async function findMachineNeeds(
  context: EngineContext,
  { parts: { driver, layout }, record }: Pick<SandboxLife, "parts" | "record">,
  { checkpoint = currentCheckpoint(record), memory = true }: NeedsOptions,
): Promise<MachineNeeds | undefined> {
  const { freezer } = driver;
  if (freezer === undefined) return undefined;
  const from = memory && checkpoint !== undefined ? await new CheckpointStore(layout).find(checkpoint) : undefined;
  const { guest, platform } = from === undefined ? freezer.fresh : needsOf(from);
  return { guest, runtime: { version: freezer.version, platform }, cpuFeatures: await context.readCpuFeatures() };
}

/**
 * Rejects with `unrestorable`, naming what is missing, unless this machine could run such a sandbox, or restore that
 * checkpoint of it.
 */
export async function assertCouldRun(
  context: EngineContext,
  { id, driver, template }: Pick<ImportedRecord, "id" | "driver" | "template">,
  needs: MachineNeeds,
  { checkpoint }: { checkpoint?: number } = {},
): Promise<void> {
  const asked: RestoreAction =
    checkpoint === undefined
      ? { action: `run sandbox ${id}`, details: { sandboxId: id } }
      : {
          action: `roll back sandbox ${id} to checkpoint ${checkpoint}`,
          details: { sandboxId: id, checkpoint },
          suggestion: "Ask a server that has what it needs, or roll back to another checkpoint.",
        };
  await findTemplate(context, template, asked);
  await assertMachineFits(context, context.driver(driver), needs, asked);
}

export async function findTemplate(
  context: EngineContext,
  name: TemplateName,
  asked: RestoreAction,
): Promise<Template> {
  try {
    return await context.templates.get(name);
  } catch (cause) {
    if (!isSandboxError(cause, "not_found")) throw cause;
    // The template of this machine's own files is made when it is first requested.
    const own = isHostTemplateName(name) ? await context.templates.get(TemplateName.parse("host")) : undefined;
    if (own?.name === name) return own;
    const because = `it has no template ${name}`;
    const here = own === undefined ? "" : `, since the files of this machine are ${own.name}`;
    throw new SandboxError("unrestorable", `Cannot ${asked.action} on this machine: ${because}${here}`, {
      suggestion:
        asked.suggestion ?? "Resume the sandbox on a machine that has it, or give this one the same template.",
      details: { ...asked.details, part: "template", template: name },
      cause,
    });
  }
}

function currentCheckpoint(record: SandboxRecord): number | undefined {
  if ("checkpoint" in record) return record.checkpoint;
  return "base" in record ? record.base : undefined;
}
