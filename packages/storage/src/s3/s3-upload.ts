import { Readable } from "node:stream";
import { deadlineAfter, isSandboxError, SandboxError } from "@atoll/protocol";
import type { Gate } from "../bucket/gate.ts";
import { retried } from "../bucket/retry.ts";
import { hashFile, openSource, readWhole, sendFile } from "../bucket/send-file.ts";
import { assertSameBytes } from "../call-checks.ts";
import type { UploadOptions } from "../object-store.ts";
import type { S3Bucket, S3Condition, StoredEntry } from "./s3-bucket.ts";
import { newSeal, sealBytes } from "./s3-envelope.ts";
import type { S3Traits } from "./s3-traits.ts";
import { writeIf, type Write } from "./s3-write.ts";

interface UploadCall {
  bucket: S3Bucket;
  traits: (signal: AbortSignal) => Promise<S3Traits>;
  gate: Gate;
  pieceBytes: number;
  key: string;
  name: string;
  signal: AbortSignal;
}

/** The most parts that S3 accepts, and the most bytes in one write. */
const maxParts = 10_000;
const maxBytesAtOnce = 5 * 1024 ** 3;
const streamAttempts = 5;
/** The limit for an undo after the caller has gone. */
const undoWithinMs = 10_000;

export async function uploadToS3(call: UploadCall, path: string, options: UploadOptions): Promise<StoredEntry> {
  if (options.sizeBytes <= call.pieceBytes) return uploadWhole(call, path, options);
  const isSafeInParts = options.if === undefined || (await call.traits(call.signal)).canCompleteIf;
  return isSafeInParts ? uploadParts(call, path, options) : uploadStream(call, path, options);
}

/** Uploads a file that is one piece. No byte is sent before the file has the expected bytes. */
async function uploadWhole(call: UploadCall, path: string, options: UploadOptions): Promise<StoredEntry> {
  const { bucket, name, signal } = call;
  const write = newWrite(call);
  const leave = await call.gate.enter(signal);
  try {
    const body = Buffer.concat([await readWhole(path, options, signal), write.seal]);
    const entry = await writeIf(write, options.if, (condition) => bucket.put(name, body, condition, signal));
    options.onProgress?.(options.sizeBytes);
    return entry;
  } finally {
    leave();
  }
}

/**
 * Uploads in parts, several at a time. The parts become an object when all of them are there and the file had the
 * expected bytes.
 */
async function uploadParts(call: UploadCall, path: string, options: UploadOptions): Promise<StoredEntry> {
  const { bucket, name, signal } = call;
  const write = newWrite(call);
  const pieceBytes = Math.max(call.pieceBytes, Math.ceil(options.sizeBytes / maxParts));
  const uploadId = await bucket.createUpload(name, signal);
  try {
    const etags: string[] = [];
    let storedBytes = 0;
    await sendFile(path, options, { ...call, pieceBytes }, async (piece, stop) => {
      const data = piece.isLast ? Buffer.concat([piece.data, write.seal]) : piece.data;
      etags[piece.index] = await bucket.uploadPart(name, uploadId, piece.index + 1, data, stop);
      storedBytes += piece.data.length;
      options.onProgress?.(storedBytes);
    });
    signal.throwIfAborted();
    return await writeIf(write, options.if, (condition) =>
      completeOnce(write, () => bucket.completeUpload(name, uploadId, etags, condition, signal)),
    );
  } catch (error) {
    await bucket.abortUpload(name, uploadId, deadlineAfter(undoWithinMs)).catch(() => undefined);
    throw error;
  }
}

/** If the upload no longer exists when it is completed, an attempt whose answer was lost may have completed it. */
async function completeOnce(write: Write, complete: () => Promise<StoredEntry>): Promise<StoredEntry> {
  try {
    return await complete();
  } catch (error) {
    if (!isSandboxError(error, "not_found")) throw error;
    const { entry, body } = await write.bucket.get(write.name, `bytes=-${sealBytes}`, write.signal);
    if (Buffer.concat(await body.toArray()).equals(write.seal)) return entry;
    throw error;
  }
}

/**
 * Uploads in one write, because the server honours conditions only there. The file is read twice: the signature of the
 * write contains the checksum of its body, with which the server compares what arrives.
 */
async function uploadStream(call: UploadCall, path: string, options: UploadOptions): Promise<StoredEntry> {
  const { bucket, key, name, signal } = call;
  const write = newWrite(call);
  const sizeBytes = options.sizeBytes + sealBytes;
  if (sizeBytes > maxBytesAtOnce) {
    throw new SandboxError("unsupported", `Cannot upload ${key} under a condition: it has ${options.sizeBytes} bytes`, {
      suggestion: `${bucket.place} honours conditions up to 5 GiB only; upload to a new key without a condition.`,
    });
  }
  const { hash, sizeBytes: foundBytes } = await hashFile(path, signal);
  assertSameBytes(path, options, { sha256: hash.copy().digest("hex"), sizeBytes: foundBytes });
  const checksum = { sha256: hash.update(write.seal).digest("hex"), sizeBytes };
  const canPass = (error: unknown) => isSandboxError(error, "unavailable");
  const send = (condition: S3Condition) =>
    retried(streamAttempts, signal, canPass, async () => {
      const body = Readable.from(sealedFile(path, write.seal, options), { objectMode: false });
      try {
        return await bucket.putStream(name, body, checksum, condition, signal);
      } finally {
        body.destroy();
      }
    });
  const leave = await call.gate.enter(signal);
  try {
    return await writeIf(write, options.if, send);
  } finally {
    leave();
  }
}

async function* sealedFile(path: string, seal: Buffer, options: UploadOptions): AsyncGenerator<Buffer> {
  await using file = await openSource(path);
  const end = Math.max(0, options.sizeBytes - 1);
  for await (const chunk of file.handle.createReadStream({ autoClose: false, end, highWaterMark: 1 << 20 })) {
    yield chunk as Buffer;
  }
  yield seal;
}

function newWrite({ bucket, traits, key, name, signal }: UploadCall): Write {
  return { bucket, traits, key, name, seal: newSeal(), signal };
}
