import { z } from "zod";
import { SandboxId, TemplateName } from "./ids.ts";

/** The name that a client gives to a snapshot. Two keys may give the same name to different snapshots. */
export const SnapshotName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, "a snapshot name is at most 63 characters of a-z, 0-9, '.', '_' and '-'")
  .brand<"SnapshotName">();
export type SnapshotName = z.infer<typeof SnapshotName>;

/** Refers to a snapshot: by its name if it is the caller's own, otherwise as `<namespace>/<name>`. */
export const SnapshotRef = z
  .string()
  .regex(
    /^(?:[a-z0-9]{1,63}\/)?[a-z0-9][a-z0-9._-]{0,62}$/,
    "a snapshot is <name>, or <namespace>/<name>; a name is at most 63 characters of a-z, 0-9, '.', '_' and '-'",
  );

/** What a sandbox wrote over its template, under a name. */
export const SnapshotInfo = z.strictObject({
  name: SnapshotName,
  /** `<namespace>/<name>`, by which every client that may see the snapshot can refer to it. */
  ref: SnapshotRef,
  /** Whether every key may start sandboxes from it, look at it and export it. */
  shared: z.boolean(),
  /** The template below the files. A sandbox that starts from the snapshot starts from this template. */
  template: TemplateName,
  createdAtMs: z.int(),
  /** The key that made or imported it. */
  owner: z.string(),
  /** The sandbox whose files they were. */
  sandboxId: SandboxId,
  /** The size of the files as an archive. */
  sizeBytes: z.int().min(0),
  /** The bytes that the snapshot takes in the store. */
  storedBytes: z.int().min(0),
  /** The digest of that archive. The same files have the same digest on every server. */
  sha256: z.string(),
});
export type SnapshotInfo = z.infer<typeof SnapshotInfo>;

export const TakeSnapshot = z.strictObject({ name: SnapshotName });

export const UpdateSnapshot = z.strictObject({ shared: z.boolean() });

export const SnapshotList = z.strictObject({ snapshots: z.array(SnapshotInfo) });
