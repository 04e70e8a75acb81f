import { SandboxId, SnapshotName, SnapshotRef, TemplateName, type SnapshotInfo } from "@atoll/protocol";
import { z } from "zod";
import { partEncodings } from "../persistence/checkpoint-keys.ts";

const Seal = { sizeBytes: z.int().min(0), sha256: z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits") };

/**
 * What a snapshot says about itself wherever it is. It contains nothing of a machine: no paths, no versions of
 * programs.
 */
export const SnapshotHeader = z.strictObject({
  version: z.literal(1),
  name: SnapshotName,
  template: TemplateName,
  /** The exact version of the template, where that differs from machine to machine. */
  base: TemplateName,
  sandboxId: SandboxId,
  createdAtMs: z.int(),
  /** The archive of its files; `trees` is the number of directory trees that the template consists of. */
  files: z.strictObject({ ...Seal, trees: z.int().min(1).max(64) }),
  /** The form in which the archive is stored. */
  stored: z.strictObject({ encoding: z.enum(partEncodings), ...Seal }),
});
export type SnapshotHeader = z.infer<typeof SnapshotHeader>;

/** The manifest of a snapshot in the store. It is written last: without it, the snapshot does not exist. */
export const SnapshotManifest = z.strictObject({
  ...SnapshotHeader.shape,
  owner: z.string(),
  /**
   * The namespace of the name; absent for snapshots from before there were namespaces, which are in that of their
   * owner.
   */
  namespace: z.string().optional(),
  shared: z.boolean().optional(),
  /** The key of the archive in the store. */
  key: z.string(),
});
export type SnapshotManifest = z.infer<typeof SnapshotManifest>;

export function infoOf(manifest: SnapshotManifest): SnapshotInfo {
  const { name, template, createdAtMs, owner, namespace = owner, sandboxId, files, stored, shared = false } = manifest;
  const { sizeBytes, sha256 } = files;
  const of = { name, ref: SnapshotRef.parse(`${namespace}/${name}`), shared, owner };
  return { ...of, template, createdAtMs, sandboxId, sizeBytes, storedBytes: stored.sizeBytes, sha256 };
}
