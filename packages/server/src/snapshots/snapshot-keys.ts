import { randomUUID } from "node:crypto";
import { SnapshotName } from "@atoll/protocol";

export const snapshotsPrefix = "snapshots/";
export const retiredPrefix = "snapshot-notes/retired/";
export const condemnedKey = "snapshot-notes/condemned.json";

/** No name begins with `@`, so a namespace cannot be taken for a snapshot of the older layout without namespaces. */
const keyForm = /^snapshots\/(?:@([a-z0-9]{1,63})\/)?([^/]+)\/([^/]+)$/;
const manifestName = "manifest.json";
const filesNameForm = /^files-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Identifies a snapshot in a store. Snapshots from before there were namespaces have none. */
export interface SnapshotPlace {
  namespace?: string | undefined;
  name: SnapshotName;
}

export const snapshotPrefix = ({ namespace, name }: SnapshotPlace): string =>
  `${snapshotsPrefix}${namespace === undefined ? "" : `@${namespace}/`}${name}/`;
export const manifestKey = (place: SnapshotPlace): string => `${snapshotPrefix(place)}${manifestName}`;

/** Returns a key that was never used. */
export const newFilesKey = (place: SnapshotPlace): string => `${snapshotPrefix(place)}files-${randomUUID()}`;

/** Returns the snapshot of a manifest, or undefined if the key is not one of a manifest. */
export function parseManifestKey(key: string): SnapshotPlace | undefined {
  const { place, last } = split(key);
  return last === manifestName ? place : undefined;
}

/** Returns the snapshot that an archive was made for, or undefined if the key is not one of an archive. */
export function parseFilesKey(key: string): SnapshotPlace | undefined {
  const { place, last } = split(key);
  return filesNameForm.test(last) ? place : undefined;
}

function split(key: string): { place: SnapshotPlace | undefined; last: string } {
  const [, namespace, text, last = ""] = keyForm.exec(key) ?? [];
  const name = SnapshotName.safeParse(text).data;
  return { place: name === undefined ? undefined : { namespace, name }, last };
}
