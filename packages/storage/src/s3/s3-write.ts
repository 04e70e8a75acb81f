import { isSandboxError } from "@atoll/protocol";
import { absentAsUndefined } from "../bucket/outcomes.ts";
import { retried } from "../bucket/retry.ts";
import { conflict } from "../call-checks.ts";
import type { ObjectVersion, WriteCondition } from "../object-store.ts";
import type { S3Bucket, S3Condition, StoredEntry } from "./s3-bucket.ts";
import { canBeReplaced, sealBytes } from "./s3-envelope.ts";
import { matchHeader, type S3Traits } from "./s3-traits.ts";

export interface SealedWrite {
  bucket: S3Bucket;
  name: string;
  /** The last bytes of this write, which no other write has. */
  seal: Buffer;
  signal: AbortSignal;
}

export interface Write extends SealedWrite {
  key: string;
  traits: (signal: AbortSignal) => Promise<S3Traits>;
}

const raceAttempts = 5;

/** An ETag as stores give them. `*` and lists, which a server reads as more than one version, are not accepted. */
const etagShape = /^[\w.+/=-]{1,200}$/;

/**
 * Writes under a condition, or rejects with `conflict`. The client retries when an answer is lost, and the store then
 * refuses the retry because the first attempt succeeded: so after a refusal, what is stored is compared with what was
 * written.
 */
export async function writeIf(
  write: Write,
  condition: WriteCondition["if"],
  send: (condition: S3Condition) => Promise<StoredEntry>,
): Promise<StoredEntry> {
  if (condition === undefined) return send({});
  const { etagForm } = await write.traits(write.signal);
  if (condition === "absent") {
    const created = await sendOnce(write, () => send({ IfNoneMatch: "*" }));
    if (created.isDone) return created.entry;
    // A tombstone exists for the store only, and for no reader.
    if (created.found === undefined || !canBeReplaced(created.found.seal)) throw conflict(write.key);
    return replace(created.found.entry.etag);
  }
  if (!etagShape.test(condition)) throw conflict(write.key);
  return replace(condition);

  async function replace(etag: string | ObjectVersion): Promise<StoredEntry> {
    const replaced = await sendOnce(write, () => send({ IfMatch: matchHeader(etag, etagForm) }));
    if (replaced.isDone) return replaced.entry;
    throw conflict(write.key);
  }
}

interface Found {
  entry: StoredEntry;
  /** The last bytes of the entry, or all bytes if it is not an object. */
  seal: Buffer;
}

type Sent = { isDone: true; entry: StoredEntry } | { isDone: false; found: Found | undefined };

/** Amazon refuses a write that meets another one like it and asks for a retry: the condition may still hold. */
const isRace = (error: unknown): boolean =>
  isSandboxError(error, "conflict") && error.details["said"] === "ConditionalRequestConflict";

/** Sends a write. If it is refused, finds out whether an earlier attempt of the same write succeeded. */
export async function sendOnce(write: SealedWrite, send: () => Promise<StoredEntry>): Promise<Sent> {
  try {
    return { isDone: true, entry: await retried(raceAttempts, write.signal, isRace, send) };
  } catch (error) {
    // `not_found` means that the version to replace no longer exists, or that the upload is over already.
    if (!isSandboxError(error, "conflict") && !isSandboxError(error, "not_found")) throw error;
  }
  const there = await readSeal(write);
  if (there !== undefined && there.seal.equals(write.seal)) return { isDone: true, entry: there.entry };
  return { isDone: false, found: there };
}

async function readSeal({ bucket, name, signal }: SealedWrite): Promise<Found | undefined> {
  return absentAsUndefined(async () => {
    try {
      const { entry, body } = await bucket.get(name, `bytes=-${sealBytes}`, signal);
      return { entry, seal: Buffer.concat(await body.toArray()) };
    } catch (error) {
      // An empty entry has no last bytes. We write nothing empty; other programs do.
      if (!isSandboxError(error) || error.details["said"] !== "InvalidRange") throw error;
      return { entry: await bucket.head(name, signal), seal: Buffer.alloc(0) };
    }
  });
}
