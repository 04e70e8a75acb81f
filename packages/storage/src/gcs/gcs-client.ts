import { Storage } from "@google-cloud/storage";
import { endpointForMessages } from "../bucket/outcomes.ts";
import { GcsBucket } from "./gcs-bucket.ts";

export interface GcsStoreOptions {
  bucket: string;
  /** The address of another server with the JSON API; requests to it have no credentials. */
  endpoint?: string;
  projectId?: string;
  /** The file of a service account's key. Without it the client looks where its documentation says. */
  keyFile?: string;
  /** The prefix of every key, with a slash at its end. */
  prefix?: string;
  /** The size of the pieces in which files are sent and fetched. */
  pieceBytes?: number;
  /** How many pieces are in flight and in memory at once, in all calls together. */
  parallel?: number;
  /** How often a request is made before its failure is reported, with growing pauses. */
  maxAttempts?: number;
  /** A download that gets no byte for this long continues over another connection. */
  silentWithinMs?: number;
  /** A sweep takes pieces of uploads that began longer ago than this for abandoned. */
  sweepAfterMs?: number;
}

const defaultPieceBytes = 16 << 20;
const defaultParallel = 4;
const defaultMaxAttempts = 5;
const defaultSilentWithinMs = 15_000;
const defaultSweepAfterMs = 24 * 3_600_000;

export function openGcsBucket(options: GcsStoreOptions): {
  bucket: GcsBucket;
  prefix: string;
  pieceBytes: number;
  parallel: number;
  sweepAfterMs: number;
} {
  const storage = new Storage({
    ...(options.endpoint === undefined ? {} : { apiEndpoint: options.endpoint, projectId: "none" }),
    ...(options.projectId === undefined ? {} : { projectId: options.projectId }),
    ...(options.keyFile === undefined ? {} : { keyFilename: options.keyFile }),
    retryOptions: { autoRetry: false, maxRetries: 0 },
  });
  const prefix = options.prefix === undefined ? "" : `${options.prefix.replaceAll(/^\/+|\/+$/g, "")}/`;
  const place = `gs://${options.bucket}/${prefix}${endpointForMessages(options.endpoint)}`;
  const { maxAttempts = defaultMaxAttempts, silentWithinMs = defaultSilentWithinMs } = options;
  return {
    bucket: new GcsBucket(storage.bucket(options.bucket), place, { maxAttempts, silentWithinMs }),
    prefix,
    pieceBytes: options.pieceBytes ?? defaultPieceBytes,
    parallel: options.parallel ?? defaultParallel,
    sweepAfterMs: options.sweepAfterMs ?? defaultSweepAfterMs,
  };
}
