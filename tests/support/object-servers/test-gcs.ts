import type { GcsStoreOptions } from "../../../packages/storage/src/gcs/gcs-client.ts";
import { GcsObjectStore } from "../../../packages/storage/src/gcs/gcs-object-store.ts";
import type { GcsBehaviour, GcsBucket } from "./gcs-bucket.ts";
import { startGcsServer } from "./gcs-server.ts";
import type { ObjectServer } from "./object-server.ts";

const bucketName = "test-bucket";

export const gcsPieceBytes = 1 << 20;

export interface TestGcs {
  server: ObjectServer;
  bucket: GcsBucket;
  /** Opens another store on the same bucket. */
  open: (options?: Partial<GcsStoreOptions>) => GcsObjectStore;
  close: () => Promise<void>;
}

export async function openTestGcs(behaviour: Partial<GcsBehaviour> = {}): Promise<TestGcs> {
  const { server, bucket } = startGcsServer({ bucket: bucketName, behaviour });
  const endpoint = await server.listen();
  return {
    server,
    bucket,
    open: (options = {}) =>
      new GcsObjectStore({ bucket: bucketName, endpoint, pieceBytes: gcsPieceBytes, maxAttempts: 3, ...options }),
    close: () => server.close(),
  };
}
