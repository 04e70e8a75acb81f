import type { StoreConfig } from "@atoll/storage";
import type { S3StoreOptions } from "../../../packages/storage/src/s3/s3-client.ts";
import { S3ObjectStore } from "../../../packages/storage/src/s3/s3-object-store.ts";
import type { ObjectServer } from "./object-server.ts";
import type { S3Behaviour, S3Bucket } from "./s3-bucket.ts";
import { s3AccessKeyId, startS3Server } from "./s3-server.ts";

const bucketName = "test-bucket";

/** S3 allows no smaller parts. */
export const s3PieceBytes = 5 << 20;

export interface TestS3 {
  server: ObjectServer;
  bucket: S3Bucket;
  /** The settings with which another process opens the store. */
  config: StoreConfig;
  /** Opens another store on the same bucket; `close` closes all of them. */
  open: (options?: Partial<S3StoreOptions>) => S3ObjectStore;
  close: () => Promise<void>;
}

export async function openTestS3(behaviour: Partial<S3Behaviour> = {}, now?: () => number): Promise<TestS3> {
  const { server, bucket } = startS3Server({ bucket: bucketName, behaviour, ...(now === undefined ? {} : { now }) });
  const endpoint = await server.listen();
  const stores: S3ObjectStore[] = [];
  const credentials = { accessKeyId: s3AccessKeyId, secretAccessKey: "secret" };
  const given = { bucket: bucketName, endpoint, credentials, pieceBytes: s3PieceBytes, maxAttempts: 3 };
  return {
    server,
    bucket,
    config: { kind: "s3", ...given },
    open: (options = {}) => {
      // The client writes into the credentials where they came from, so each store gets a copy.
      const store = new S3ObjectStore({ ...given, credentials: { ...credentials }, ...options });
      stores.push(store);
      return store;
    },
    close: async () => {
      await Promise.all(stores.map((store) => store.close()));
      await server.close();
    },
  };
}
