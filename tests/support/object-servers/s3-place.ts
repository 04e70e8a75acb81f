import type { StoreConfig } from "@atoll/storage";
import type { S3StoreOptions } from "../../../packages/storage/src/s3/s3-client.ts";
import { S3ObjectStore } from "../../../packages/storage/src/s3/s3-object-store.ts";
import type { ObjectServer } from "./object-server.ts";
import type { S3Behaviour, S3Bucket } from "./s3-bucket.ts";
import { s3AccessKeyId, startS3Server } from "./s3-server.ts";

const bucketName = "test-bucket";

/** The smallest that S3 allows. */
export const s3PieceBytes = 5 << 20;

export interface S3Place {
  server: ObjectServer;
  bucket: S3Bucket;
  /** For other processes. */
  config: StoreConfig;
  /** Another store on the same bucket; all are closed with the place. */
  open: (options?: Partial<S3StoreOptions>) => S3ObjectStore;
  close: () => Promise<void>;
}

export async function openS3Place(behaviour: Partial<S3Behaviour> = {}, now?: () => number): Promise<S3Place> {
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
      // The client notes in them where they came from.
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
