import { z } from "zod";
import { SandboxId, TemplateName } from "./ids.ts";
import { DriverName } from "./sandbox.ts";

/**
 * A frozen layer: the sandbox that wrote it and the checkpoint it came with, or the digest of saved files that
 * sandboxes begin with. It never changes, and sandboxes share it.
 */
export const LayerId = z
  .string()
  .regex(
    /^([a-z0-9]{20}-[1-9][0-9]{0,8}(-merged)?|files-[0-9a-f]{64})$/,
    "a layer id is a sandbox id and the number of a checkpoint, or files- and a digest",
  )
  .brand<"LayerId">();
export type LayerId = z.infer<typeof LayerId>;

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits");

/** A file of the memory image. */
export const MemoryPart = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9._-]{0,62}$/),
  sizeBytes: z.int().min(0),
  sha256: Sha256,
});
export type MemoryPart = z.infer<typeof MemoryPart>;

/** Size and digest are those of the layer as an archive, so that they hold on any machine. */
export const LayerPart = z.strictObject({ id: LayerId, sizeBytes: z.int().min(0), sha256: Sha256 });
export type LayerPart = z.infer<typeof LayerPart>;

/** What the owner of the engine kept about the sandbox at that moment, as an archive. */
const OwnerPart = z.strictObject({ sizeBytes: z.int().min(0), sha256: Sha256 });

/** How long each step took, in milliseconds and in order; together they are the whole time. */
export const PhaseTimes = z.record(z.string(), z.number());
export type PhaseTimes = z.infer<typeof PhaseTimes>;

/** What a machine must have to go on with a memory. */
export const MachineNeeds = z.strictObject({
  /** Which build of the guest is in memory: the same file has to be there when it goes on. */
  guest: z.string().regex(/^[0-9a-f]{8,64}$/),
  runtime: z.strictObject({ version: z.string(), platform: z.string() }),
  /** What the processors could do; programs in memory may have looked and count on it. */
  cpuFeatures: z.array(z.string()),
});
export type MachineNeeds = z.infer<typeof MachineNeeds>;

/**
 * What one checkpoint is made of. Written last, when all of its parts are on disk and were read back: a checkpoint
 * without a manifest is none.
 */
export const CheckpointManifest = z.strictObject({
  version: z.literal(1),
  sandboxId: SandboxId,
  /** Counts from 1 per sandbox and is never used again. */
  n: z.int().min(1),
  /** The checkpoint that the sandbox went on from before this one; null: it was created. */
  parent: z.int().min(1).nullable(),
  /** The checkpoint of another sandbox that this one is a copy of: a fork begins so. */
  origin: z.strictObject({ sandboxId: SandboxId, n: z.int().min(1) }).optional(),
  createdAtMs: z.int(),
  driver: DriverName,
  template: TemplateName,
  ...MachineNeeds.shape,
  memory: z.array(MemoryPart).min(1),
  /** The topmost first, above the template. */
  layers: z.array(LayerPart).min(1),
  /** Absent: nothing was kept. */
  owner: OwnerPart.optional(),
  /**
   * The pipes and sockets that are in its memory and not in its layers, for whoever goes on with its files alone:
   * records of the guest, in base64. Absent: they are not known.
   */
  nodes: z.array(z.base64().max(16_384)).max(32_768).optional(),
  phases: PhaseTimes,
});
export type CheckpointManifest = z.infer<typeof CheckpointManifest>;

/** A checkpoint as it is listed. */
export const CheckpointInfo = z.strictObject({
  n: z.int().min(1),
  parent: z.int().min(1).nullable(),
  createdAtMs: z.int(),
  /** What this one added: its memory and its own layer. */
  sizeBytes: z.int(),
  memoryBytes: z.int(),
  /** Of all layers that it stands on. */
  filesBytes: z.int(),
});
export type CheckpointInfo = z.infer<typeof CheckpointInfo>;

export function describeCheckpoint({ n, parent, createdAtMs, memory, layers }: CheckpointManifest): CheckpointInfo {
  const memoryBytes = memory.reduce((sum, part) => sum + part.sizeBytes, 0);
  const filesBytes = layers.reduce((sum, part) => sum + part.sizeBytes, 0);
  return { n, parent, createdAtMs, sizeBytes: memoryBytes + (layers[0]?.sizeBytes ?? 0), memoryBytes, filesBytes };
}

/** As a server lists it. */
export const ListedCheckpoint = z.strictObject({
  ...CheckpointInfo.shape,
  /** On the disk of the server that was asked. False: a rollback fetches it first. */
  local: z.boolean(),
  /** Where every server finds it that has the sandbox. */
  stored: z.boolean(),
});
export type ListedCheckpoint = z.infer<typeof ListedCheckpoint>;
