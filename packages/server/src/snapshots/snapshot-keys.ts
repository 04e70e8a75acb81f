import { randomUUID } from "node:crypto";
import { SnapshotName } from "@atoll/protocol";

export const snapshotsPrefix = "snapshots/";
export const retiredPrefix = "snapshot-notes/retired/";
export const condemnedKey = "snapshot-notes/condemned.json";

/** No name begins with `@`: a namespace cannot be taken for a snapshot of the layout that had none. */
const keyForm = /^snapshots\/(?:@([a-z0-9]{1,63})\/)?([^/]+)\/([^/]+)$/;
const manifestName = "manifest.json";
const filesNameForm = /^files-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Which snapshot of a store. Those that were written before names had namespaces have none. */
export interface SnapshotPlace {
  namespace?: string | undefined;
  name: SnapshotName;
}

export const snapshotPrefix = ({ namespace, name }: SnapshotPlace): string =>
  `${snapshotsPrefix}${namespace === undefined ? "" : `@${namespace}/`}${name}/`;
export const manifestKey = (place: SnapshotPlace): string => `${snapshotPrefix(place)}${manifestName}`;

/** Where no archive ever was. */
export const newFilesKey = (place: SnapshotPlace): string => `${snapshotPrefix(place)}files-${randomUUID()}`;

/** Which snapshot a manifest is that of; undefined: the key is not that of a manifest. */
export function parseManifestKey(key: string): SnapshotPlace | undefined {
  const { place, last } = split(key);
  return last === manifestName ? place : undefined;
}

/** Which snapshot an archive was made for; undefined: the key is not that of an archive. */
export function parseFilesKey(key: string): SnapshotPlace | undefined {
  const { place, last } = split(key);
  return filesNameForm.test(last) ? place : undefined;
}

function split(key: string): { place: SnapshotPlace | undefined; last: string } {
  const [, namespace, text, last = ""] = keyForm.exec(key) ?? [];
  const name = SnapshotName.safeParse(text).data;
  return { place: name === undefined ? undefined : { namespace, name }, last };
}
