import { SandboxId, SnapshotName, SnapshotRef, TemplateName, type SnapshotInfo } from "@atoll/protocol";
import { z } from "zod";
import { partEncodings } from "../persistence/checkpoint-keys.ts";

const Seal = { sizeBytes: z.int().min(0), sha256: z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits") };

/** What a snapshot says of itself wherever it is. Nothing of a machine: no paths, no versions of programs. */
export const SnapshotHeader = z.strictObject({
  version: z.literal(1),
  name: SnapshotName,
  template: TemplateName,
  /** Exactly which template it was, where that differs from machine to machine. */
  base: TemplateName,
  sandboxId: SandboxId,
  createdAtMs: z.int(),
  /** The archive of its files; `trees`: of how many trees the template is. */
  files: z.strictObject({ ...Seal, trees: z.int().min(1).max(64) }),
  /** And how it is kept. */
  stored: z.strictObject({ encoding: z.enum(partEncodings), ...Seal }),
});
export type SnapshotHeader = z.infer<typeof SnapshotHeader>;

/** What the store has of a snapshot, written last: a snapshot without it is none. */
export const SnapshotManifest = z.strictObject({
  ...SnapshotHeader.shape,
  owner: z.string(),
  /** Absent: it was stored before names had namespaces, and is in that of its owner. */
  namespace: z.string().optional(),
  shared: z.boolean().optional(),
  /** Where the store has the archive. */
  key: z.string(),
});
export type SnapshotManifest = z.infer<typeof SnapshotManifest>;

export function infoOf(manifest: SnapshotManifest): SnapshotInfo {
  const { name, template, createdAtMs, owner, namespace = owner, sandboxId, files, stored, shared = false } = manifest;
  const { sizeBytes, sha256 } = files;
  const of = { name, ref: SnapshotRef.parse(`${namespace}/${name}`), shared, owner };
  return { ...of, template, createdAtMs, sandboxId, sizeBytes, storedBytes: stored.sizeBytes, sha256 };
}
