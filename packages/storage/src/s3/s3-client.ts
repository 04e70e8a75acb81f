import { S3Client } from "@aws-sdk/client-s3";
import { endpointForMessages } from "../bucket/outcomes.ts";
import { S3Bucket } from "./s3-bucket.ts";

export interface S3StoreOptions {
  bucket: string;
  /** The address of a server other than Amazon's. Its buckets are addressed by path. */
  endpoint?: string;
  region?: string;
  /** The prefix of every key, with a slash at its end. */
  prefix?: string;
  /** Without them the client looks where its documentation says: environment, profile, role. */
  credentials?: { accessKeyId: string; secretAccessKey: string; sessionToken?: string };
  /** The size of the pieces in which files are sent and fetched. S3 allows no smaller ones than 5 MiB. */
  pieceBytes?: number;
  /** How many pieces are in flight and in memory at once, in all calls together. */
  parallel?: number;
  /** How often the client tries before it reports a failure, with growing pauses. */
  maxAttempts?: number;
  /** A sweep takes uploads that began longer ago than this for abandoned. */
  sweepAfterMs?: number;
}

const smallestPieceBytes = 5 << 20;
const defaultPieceBytes = 8 << 20;
const defaultParallel = 4;
const defaultMaxAttempts = 5;
const defaultSweepAfterMs = 24 * 3_600_000;
const connectWithinMs = 5_000;
/** A server that sends and accepts no byte for this long counts as gone. */
const silentWithinMs = 30_000;

const nothing = (): void => undefined;
/** Failures are reported as errors; without this the client sometimes writes to the console. */
const quiet = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };

export function openS3Bucket(options: S3StoreOptions): {
  bucket: S3Bucket;
  prefix: string;
  pieceBytes: number;
  parallel: number;
  sweepAfterMs: number;
} {
  const parallel = options.parallel ?? defaultParallel;
  const agent = { keepAlive: true, maxSockets: parallel * 4 };
  const client = new S3Client({
    region: options.region ?? "us-east-1",
    ...(options.endpoint === undefined ? {} : { endpoint: options.endpoint, forcePathStyle: true }),
    ...(options.credentials === undefined ? {} : { credentials: options.credentials }),
    maxAttempts: options.maxAttempts ?? defaultMaxAttempts,
    retryMode: "standard",
    logger: quiet,
    // The signature covers the SHA-256 of every body; many servers do not understand the newer checksums in trailers.
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
    requestHandler: {
      connectionTimeout: connectWithinMs,
      socketTimeout: silentWithinMs,
      httpAgent: agent,
      httpsAgent: agent,
    },
  });
  const prefix = options.prefix === undefined ? "" : `${options.prefix.replaceAll(/^\/+|\/+$/g, "")}/`;
  const place = `s3://${options.bucket}/${prefix}${endpointForMessages(options.endpoint)}`;
  return {
    bucket: new S3Bucket(client, options.bucket, place),
    prefix,
    pieceBytes: Math.max(smallestPieceBytes, options.pieceBytes ?? defaultPieceBytes),
    parallel,
    sweepAfterMs: options.sweepAfterMs ?? defaultSweepAfterMs,
  };
}
