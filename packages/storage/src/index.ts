export * from "./object-store.ts";
export { assertObjectKey, assertObjectPrefix } from "./object-key.ts";
export { probeConditions } from "./probe-conditions.ts";
export { S3ObjectStore } from "./s3/s3-object-store.ts";
export type { S3StoreOptions } from "./s3/s3-client.ts";
