import { randomUUID } from "node:crypto";
import { SnapshotName } from "@atoll/protocol";

export const snapshotsPrefix = "snapshots/";
export const retiredPrefix = "snapshot-notes/retired/";
export const condemnedKey = "snapshot-notes/condemned.json";

const keyForm = /^snapshots\/([^/]+)\/([^/]+)$/;
const manifestName = "manifest.json";
const filesNameForm = /^files-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export const snapshotPrefix = (name: SnapshotName): string => `${snapshotsPrefix}${name}/`;
export const manifestKey = (name: SnapshotName): string => `${snapshotPrefix(name)}${manifestName}`;

/** Where no archive ever was. */
export const newFilesKey = (name: SnapshotName): string => `${snapshotPrefix(name)}files-${randomUUID()}`;

/** Which snapshot a manifest is that of; undefined: the key is not that of a manifest. */
export function parseManifestKey(key: string): SnapshotName | undefined {
  const { name, last } = split(key);
  return last === manifestName ? name : undefined;
}

/** Which snapshot an archive was made for; undefined: the key is not that of an archive. */
export function parseFilesKey(key: string): SnapshotName | undefined {
  const { name, last } = split(key);
  return filesNameForm.test(last) ? name : undefined;
}

function split(key: string): { name: SnapshotName | undefined; last: string } {
  const [, name, last = ""] = keyForm.exec(key) ?? [];
  return { name: SnapshotName.safeParse(name).data, last };
}
