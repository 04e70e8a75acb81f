import { SandboxError, type KeyInfo } from "@atoll/protocol";
import type { SnapshotPlace } from "./snapshot-keys.ts";
import type { SnapshotManifest } from "./snapshot-manifest.ts";

/** A key, as far as snapshots go. */
export interface SnapshotUser {
  keyId: string;
  /** Whose names it gives and means. */
  namespace: string;
  /** All snapshots are there for it, and not only its own and those that are shared. */
  seesAll: boolean;
}

/** Keys that see everything trust each other, on all servers with the same store: their names are in one namespace. */
const commonNamespace = "admin";

export function snapshotUserOf({ id, ownOnly, verbs }: KeyInfo): SnapshotUser {
  const seesAll = !ownOnly || verbs.includes("admin");
  return { keyId: id, namespace: seesAll ? commonNamespace : id, seesAll };
}

export function mayChange({ keyId, seesAll }: SnapshotUser, { owner }: SnapshotManifest): boolean {
  return seesAll || owner === keyId;
}

export function mayUse(user: SnapshotUser, manifest: SnapshotManifest): boolean {
  return manifest.shared === true || mayChange(user, manifest);
}

/**
 * Where a snapshot of this name may be, in the order in which it is looked for, and which of what is found there is
 * meant. A name without a namespace is the user's own. What was stored before there were namespaces is in that of the
 * key that made it, and keys that see everything also have it by its name alone, as they had.
 */
export function placesOf(
  ref: string,
  user: SnapshotUser,
): { place: SnapshotPlace; isMeant: (manifest: SnapshotManifest) => boolean }[] {
  const [name, given] = ref.split("/").toReversed() as [SnapshotPlace["name"], string | undefined];
  const namespace = given ?? user.namespace;
  const isOld = (manifest: SnapshotManifest): boolean =>
    manifest.owner === namespace || (given === undefined && user.seesAll);
  return [
    { place: { namespace, name }, isMeant: () => true },
    { place: { namespace: undefined, name }, isMeant: isOld },
  ];
}

export function missing(ref: string): SandboxError {
  return new SandboxError("not_found", `Cannot find snapshot ${ref}`, {
    suggestion: "`atoll snapshot ls`, or GET /snapshots, lists those that there are.",
    details: { name: ref },
  });
}

export function taken(name: string): SandboxError {
  return new SandboxError("already_exists", `Cannot make snapshot ${name}: there is one of this name`, {
    suggestion: "Choose another name, or remove that one first.",
    details: { name },
  });
}
