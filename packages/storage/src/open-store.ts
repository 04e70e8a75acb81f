import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { FileObjectStore } from "./file/file-object-store.ts";
import { MountedObjectStore } from "./mounted-object-store.ts";
import type { ObjectStore } from "./object-store.ts";
import { StoreConfig } from "./store-config.ts";

/**
 * Opens the store that a configuration describes. Whether a bucket exists and honours conditions is checked by `probe`,
 * not here. The clients of buckets are loaded only when they are needed, because they are bigger than all of Atoll.
 */
export async function openStore(config: StoreConfig): Promise<ObjectStore> {
  const parsed = StoreConfig.safeParse(config);
  if (!parsed.success) {
    throw new SandboxError("invalid_argument", `Cannot open a store: ${z.prettifyError(parsed.error)}`, {
      suggestion: "See docs/storage.md for the settings of each kind of store.",
    });
  }
  switch (parsed.data.kind) {
    case "file":
      return FileObjectStore.open(parsed.data.path);
    case "s3": {
      const { kind: _kind, mount, ...options } = parsed.data;
      const { S3ObjectStore } = await import("./s3/s3-object-store.ts");
      return withMount(new S3ObjectStore(options), mount, options.prefix);
    }
    case "gcs": {
      const { kind: _kind, mount, ...options } = parsed.data;
      const { GcsObjectStore } = await import("./gcs/gcs-object-store.ts");
      return withMount(new GcsObjectStore(options), mount, options.prefix);
    }
  }
}

function withMount(bucket: ObjectStore, mount: string | undefined, prefix = ""): ObjectStore {
  return mount === undefined ? bucket : new MountedObjectStore(bucket, join(mount, prefix));
}
