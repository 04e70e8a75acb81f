import { SandboxError, type KeyInfo } from "@atoll/protocol";
import type { SnapshotPlace } from "./snapshot-keys.ts";
import type { SnapshotManifest } from "./snapshot-manifest.ts";

/** An API key as a user of snapshots. */
export interface SnapshotUser {
  keyId: string;
  /** The namespace in which it names snapshots. */
  namespace: string;
  /** True if it may use all snapshots, and not only its own and shared ones. */
  seesAll: boolean;
}

/** The namespace of all keys that see everything: they trust each other, on all servers with the same store. */
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
 * Returns where a snapshot of this name may be, in the order of the search, and which of the found ones are meant. A
 * name without a namespace is the user's own. A snapshot from before there were namespaces is in that of the key that
 * made it, and keys that see everything also find it by its name alone, as before.
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
  return new SandboxError("already_exists", `Cannot create snapshot ${name}: one with this name exists`, {
    suggestion: "Choose another name, or remove that one first.",
    details: { name },
  });
}
