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
  /** The last bytes of what is written, and of nothing else. */
  seal: Buffer;
  signal: AbortSignal;
}

export interface Write extends SealedWrite {
  key: string;
  traits: (signal: AbortSignal) => Promise<S3Traits>;
}

const raceAttempts = 5;

/** An ETag as stores give them. `*` and lists, which mean more than one version to a server, are none. */
const etagShape = /^[\w.+/=-]{1,200}$/;

/**
 * Writes under a condition, or rejects with `conflict`. The client tries again when an answer is lost, and then the
 * store refuses because of the write that went through: so whatever is refused is compared with what is there.
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
    // A tombstone is there for the server, and for nobody else.
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
  /** Its last bytes; of what is no object, all. */
  seal: Buffer;
}

type Sent = { isDone: true; entry: StoredEntry } | { isDone: false; found: Found | undefined };

/**
 * Amazon refuses a write like this that meets another one, and asks to try again: the condition may hold all the same.
 */
const isRace = (error: unknown): boolean =>
  isSandboxError(error, "conflict") && error.details["said"] === "ConditionalRequestConflict";

/** Sends a write, and finds out whether it was the one that is refused now. */
export async function sendOnce(write: SealedWrite, send: () => Promise<StoredEntry>): Promise<Sent> {
  try {
    return { isDone: true, entry: await retried(raceAttempts, write.signal, isRace, send) };
  } catch (error) {
    // Not found: a version was to be replaced of which nothing is there, or an upload that is over already.
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
      // Of nothing there are no last bytes. We write nothing that is empty; others do.
      if (!isSandboxError(error) || error.details["said"] !== "InvalidRange") throw error;
      return { entry: await bucket.head(name, signal), seal: Buffer.alloc(0) };
    }
  });
}
