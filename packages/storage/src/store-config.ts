import { isAbsolute } from "node:path";
import { z } from "zod";

const absolutePath = z
  .string()
  .max(1_000)
  .refine((path) => isAbsolute(path) && !path.includes("\0"), "must be an absolute path");
const bucketName = z.string().regex(/^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$/, "must be the name of a bucket");
const prefix = z
  .string()
  .max(400)
  .regex(/^(?!\.{1,2}(?:\/|$))[\w.=@+-]+(?:\/(?!\.{1,2}(?:\/|$))[\w.=@+-]+)*$/, "must be parts separated by slashes");
const endpoint = z.url({ protocol: /^https?$/ });

/** How the client of a bucket behaves; every setting has a sensible default. */
const clientOptions = {
  pieceBytes: z
    .int()
    .min(5 << 20)
    .max(1 << 30)
    .exactOptional(),
  parallel: z.int().min(1).max(64).exactOptional(),
  maxAttempts: z.int().min(1).max(20).exactOptional(),
  sweepAfterMs: z.int().min(60_000).exactOptional(),
};

/** Where a bucket is, and where it is mounted if it is. Big objects are then read through the mount. */
const bucketPlace = {
  bucket: bucketName,
  prefix: prefix.exactOptional(),
  endpoint: endpoint.exactOptional(),
  mount: absolutePath.exactOptional(),
};

const FileStoreConfig = z.strictObject({ kind: z.literal("file"), path: absolutePath });

const S3StoreConfig = z.strictObject({
  kind: z.literal("s3"),
  ...bucketPlace,
  region: z.string().min(1).max(100).exactOptional(),
  credentials: z
    .strictObject({
      accessKeyId: z.string().min(1),
      secretAccessKey: z.string().min(1),
      sessionToken: z.string().min(1).exactOptional(),
    })
    .exactOptional(),
  ...clientOptions,
});

const GcsStoreConfig = z.strictObject({
  kind: z.literal("gcs"),
  ...bucketPlace,
  projectId: z.string().min(1).max(100).exactOptional(),
  keyFile: absolutePath.exactOptional(),
  ...clientOptions,
  silentWithinMs: z.int().min(1_000).exactOptional(),
});

/** Where objects are kept. */
export const StoreConfig = z.discriminatedUnion("kind", [FileStoreConfig, S3StoreConfig, GcsStoreConfig]);
export type StoreConfig = z.output<typeof StoreConfig>;
