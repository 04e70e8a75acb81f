import { z } from "zod";
import { SandboxId, TemplateName } from "./ids.ts";
import { DriverName } from "./sandbox.ts";

/**
 * Names a frozen layer by the sandbox that wrote it and the checkpoint it came with, or by the digest of saved files
 * that sandboxes start from. A layer never changes, and sandboxes share it.
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

/** One file of the memory image. */
export const MemoryPart = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9._-]{0,62}$/),
  sizeBytes: z.int().min(0),
  sha256: Sha256,
});
export type MemoryPart = z.infer<typeof MemoryPart>;

/** Size and digest are those of the layer as an archive, so that they are the same on any machine. */
export const LayerPart = z.strictObject({ id: LayerId, sizeBytes: z.int().min(0), sha256: Sha256 });
export type LayerPart = z.infer<typeof LayerPart>;

/** What the owner of the engine kept about the sandbox at that time, as an archive. */
const OwnerPart = z.strictObject({ sizeBytes: z.int().min(0), sha256: Sha256 });

/** How long each step took, in milliseconds and in the order of the steps. The sum is the whole time. */
export const PhaseTimes = z.record(z.string(), z.number());
export type PhaseTimes = z.infer<typeof PhaseTimes>;

/** What a machine must have to resume a memory image. */
export const MachineNeeds = z.strictObject({
  /** The build of the guest that is in memory. The same file has to be present when the sandbox resumes. */
  guest: z.string().regex(/^[0-9a-f]{8,64}$/),
  runtime: z.strictObject({ version: z.string(), platform: z.string() }),
  /** The features of the processors. Programs in memory may have checked them and rely on them. */
  cpuFeatures: z.array(z.string()),
});
export type MachineNeeds = z.infer<typeof MachineNeeds>;

/**
 * The parts of one checkpoint. The manifest is written last, when all parts are on disk and were read back: a
 * checkpoint without a manifest does not count.
 */
export const CheckpointManifest = z.strictObject({
  version: z.literal(1),
  sandboxId: SandboxId,
  /** The number counts from 1 per sandbox and is never used again. */
  n: z.int().min(1),
  /** The checkpoint that the sandbox was resumed from before this one; null if it was created. */
  parent: z.int().min(1).nullable(),
  /** The checkpoint of another sandbox that this one is a copy of: the first checkpoint of a fork. */
  origin: z.strictObject({ sandboxId: SandboxId, n: z.int().min(1) }).optional(),
  createdAtMs: z.int(),
  driver: DriverName,
  template: TemplateName,
  ...MachineNeeds.shape,
  memory: z.array(MemoryPart).min(1),
  /** The layers, topmost first, above the template. */
  layers: z.array(LayerPart).min(1),
  /** What the owner of the engine kept; absent when it kept nothing. */
  owner: OwnerPart.optional(),
  /**
   * The pipes and sockets that are in the memory and not in the layers, for a resume without memory: records of the
   * guest, in base64. Absent when they are not known.
   */
  nodes: z.array(z.base64().max(16_384)).max(32_768).optional(),
  phases: PhaseTimes,
});
export type CheckpointManifest = z.infer<typeof CheckpointManifest>;

/** A checkpoint in the engine's list. */
export const CheckpointInfo = z.strictObject({
  n: z.int().min(1),
  parent: z.int().min(1).nullable(),
  createdAtMs: z.int(),
  /** The bytes that this checkpoint added: its memory and its own layer. */
  sizeBytes: z.int(),
  memoryBytes: z.int(),
  /** The bytes of all layers below the sandbox. */
  filesBytes: z.int(),
});
export type CheckpointInfo = z.infer<typeof CheckpointInfo>;

export function describeCheckpoint({ n, parent, createdAtMs, memory, layers }: CheckpointManifest): CheckpointInfo {
  const memoryBytes = memory.reduce((sum, part) => sum + part.sizeBytes, 0);
  const filesBytes = layers.reduce((sum, part) => sum + part.sizeBytes, 0);
  return { n, parent, createdAtMs, sizeBytes: memoryBytes + (layers[0]?.sizeBytes ?? 0), memoryBytes, filesBytes };
}

/** A checkpoint in a server's list. */
export const ListedCheckpoint = z.strictObject({
  ...CheckpointInfo.shape,
  /** Whether the checkpoint is on the disk of the server that answers. If not, a rollback fetches it first. */
  local: z.boolean(),
  /** Whether the checkpoint is in the store of the sandbox's checkpoints, where every server can fetch it. */
  stored: z.boolean(),
});
export type ListedCheckpoint = z.infer<typeof ListedCheckpoint>;
