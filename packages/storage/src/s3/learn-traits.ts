import { createHash, randomUUID } from "node:crypto";
import { deadlineAfter, isSandboxError, SandboxError } from "@atoll/protocol";
import { uuidForm } from "../uuid-form.ts";
import type { S3Bucket, S3Condition, StoredEntry } from "./s3-bucket.ts";
import { newSeal } from "./s3-envelope.ts";
import { matchHeader, type S3Traits } from "./s3-traits.ts";
import { sendOnce } from "./s3-write.ts";

const racers = 6;
const trials = ["write", "race", "complete", "remove"] as const;
const trialKeyForm = new RegExp(`^probe/${uuidForm}/complete$`);
/** A well-formed ETag of something that is never written here. */
const foreignEtag = createHash("md5").update("never written").digest("hex");

/**
 * Tries every condition that the store relies on, under names that are removed again. Rejects with `unsupported` and
 * what was seen.
 */
export async function learnTraits(bucket: S3Bucket, prefix: string, signal: AbortSignal): Promise<S3Traits> {
  const folder = `${prefix}probe/${randomUUID()}`;
  const names = trials.map((name) => `${folder}/${name}`);
  const [write = "", race = "", complete = "", remove = ""] = names;
  try {
    const etagForm = await learnEtagForm(bucket, write, signal);
    await assertOneWinner(bucket, race, etagForm, signal);
    const [canCompleteIf, canRemoveIf] = await Promise.all([
      learnComplete(bucket, complete, etagForm, signal),
      learnRemove(bucket, remove, etagForm, signal),
    ]);
    return { etagForm, canCompleteIf, canRemoveIf };
  } finally {
    // The result matters more than what is left behind, and the names are removed even if the caller has gone.
    await Promise.allSettled(names.map((name) => bucket.remove(name, {}, deadlineAfter(10_000))));
  }
}

/** Whether only such a trial uploads to this key. */
export const isTrialUpload = (key: string): boolean => trialKeyForm.test(key);

async function learnEtagForm(bucket: S3Bucket, name: string, signal: AbortSignal): Promise<S3Traits["etagForm"]> {
  const write = (condition: S3Condition) => tryWrite(bucket, name, condition, signal);
  const first = await write({ IfNoneMatch: "*" });
  if (first === "conflict") throw dishonest(bucket, "refused to create an object that was not there");
  if ((await write({ IfNoneMatch: "*" })) !== "conflict") {
    throw dishonest(bucket, "created an object that was there (If-None-Match is ignored)");
  }
  for (const form of ["quoted", "bare"] as const) {
    if ((await write({ IfMatch: matchHeader(foreignEtag, form) })) !== "conflict") {
      throw dishonest(bucket, "replaced a version that was never there (If-Match is ignored)");
    }
  }
  for (const form of ["quoted", "bare"] as const) {
    if ((await write({ IfMatch: matchHeader(first.etag, form) })) === "conflict") continue;
    if ((await write({ IfMatch: matchHeader(first.etag, form) })) === "conflict") return form;
    throw dishonest(bucket, "replaced a version that was no longer there (If-Match is ignored)");
  }
  throw dishonest(bucket, "refused to replace the very version that was there");
}

/** Throws unless exactly one of many creations of an object, or of many replacements of one version, succeeds. */
async function assertOneWinner(
  bucket: S3Bucket,
  name: string,
  form: S3Traits["etagForm"],
  signal: AbortSignal,
): Promise<void> {
  const race = async (condition: S3Condition, action: string): Promise<StoredEntry> => {
    const attempts = Array.from({ length: racers }, () => tryWrite(bucket, name, condition, signal));
    const winners = (await Promise.all(attempts)).filter((result) => result !== "conflict");
    const [winner] = winners;
    if (winner === undefined || winners.length !== 1) {
      throw dishonest(bucket, `let ${winners.length} of ${racers} ${action}`);
    }
    return winner;
  };
  const { etag } = await race({ IfNoneMatch: "*" }, "create one object");
  await race({ IfMatch: matchHeader(etag, form) }, "replace one version");
}

async function learnComplete(
  bucket: S3Bucket,
  name: string,
  form: S3Traits["etagForm"],
  signal: AbortSignal,
): Promise<boolean> {
  await bucket.put(name, newSeal(), {}, signal);
  const isKept = async (condition: S3Condition) => {
    const uploadId = await bucket.createUpload(name, signal);
    try {
      const etag = await bucket.uploadPart(name, uploadId, 1, newSeal(), signal);
      return await isRefused(bucket.completeUpload(name, uploadId, [etag], condition, signal));
    } finally {
      await bucket.abortUpload(name, uploadId, deadlineAfter(10_000)).catch(() => undefined);
    }
  };
  return (await isKept({ IfNoneMatch: "*" })) && (await isKept({ IfMatch: matchHeader(foreignEtag, form) }));
}

async function learnRemove(
  bucket: S3Bucket,
  name: string,
  form: S3Traits["etagForm"],
  signal: AbortSignal,
): Promise<boolean> {
  await bucket.put(name, newSeal(), {}, signal);
  return isRefused(bucket.remove(name, { IfMatch: matchHeader(foreignEtag, form) }, signal));
}

async function tryWrite(
  bucket: S3Bucket,
  name: string,
  condition: S3Condition,
  signal: AbortSignal,
): Promise<StoredEntry | "conflict"> {
  const seal = newSeal();
  const sent = await sendOnce({ bucket, name, seal, signal }, () => bucket.put(name, seal, condition, signal));
  return sent.isDone ? sent.entry : "conflict";
}

/**
 * Whether a condition that does not hold is refused. Two failures do not count as a refusal: a server that refuses a
 * header that it does not know, and an upload that is over because an attempt whose answer was lost has completed it.
 */
async function isRefused(attempt: Promise<unknown>): Promise<boolean> {
  try {
    await attempt;
    return false;
  } catch (error) {
    if (isSandboxError(error, "conflict")) return true;
    const isUnknown = isSandboxError(error) && /NotImplemented|InvalidArgument/.test(String(error.details["said"]));
    if (isUnknown || isSandboxError(error, "not_found")) return false;
    throw error;
  }
}

function dishonest(bucket: S3Bucket, seen: string): SandboxError {
  return new SandboxError("unsupported", `Cannot rely on ${bucket.place}: it ${seen}`, {
    suggestion: "Use a store that honours conditional writes.",
    details: { place: bucket.place, seen },
  });
}
