import { SandboxId } from "@atoll/protocol";
import type { ObjectInfo, ObjectStore } from "@atoll/storage";

const sandboxesPrefix = "sandboxes/";
const keyForm = /^sandboxes\/([a-z0-9]{20})\/(lease|metadata)\.json$/;

export const leaseKey = (id: SandboxId): string => `${sandboxesPrefix}${id}/lease.json`;
export const metadataKey = (id: SandboxId): string => `${sandboxesPrefix}${id}/metadata.json`;

/** The objects of one sandbox in the store, as of a moment ago. */
export interface StoredSandbox {
  id: SandboxId;
  lease?: ObjectInfo;
  metadata?: ObjectInfo;
}

/** Lists all sandboxes of a metadata store, one after the other. */
export async function* listSandboxes(store: ObjectStore, signal: AbortSignal): AsyncIterable<StoredSandbox> {
  let current: StoredSandbox | undefined;
  for await (const info of store.list(sandboxesPrefix, { signal })) {
    const [, id, kind] = keyForm.exec(info.key) ?? [];
    if (id === undefined) continue;
    if (current !== undefined && current.id !== id) yield current;
    if (current?.id !== id) current = { id: SandboxId.parse(id) };
    current = kind === "lease" ? { ...current, lease: info } : { ...current, metadata: info };
  }
  if (current !== undefined) yield current;
}
