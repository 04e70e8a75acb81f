import { randomBytes } from "node:crypto";

/**
 * S3 names a version by a hash of its bytes, so that the same bytes written again would pass for the version of before.
 * Every object therefore ends in random bytes of its own, which readers do not see. They also tell a writer whose
 * answer was lost that the object is its own.
 */
export const sealBytes = 16;

/**
 * What stands for a removed object until it can be deleted: shorter than any object, and not like anything that others
 * put into a bucket. A write under a condition is kept by every server that is worth using, a removal is not; so the
 * removal is decided by the write.
 */
const tombstoneMark = Buffer.from("\0atoll\0");
const tombstoneRandomBytes = 8;
const tombstoneBytes = tombstoneMark.length + tombstoneRandomBytes;
/** Older ones are random bytes only. Of those one in two thousand reads like text. */
const olderTombstoneBytes = 8;
const textForm = /^[\t\n\r -~]*$/;

export const newSeal = (): Buffer => randomBytes(sealBytes);

export const newTombstone = (): Buffer => Buffer.concat([tombstoneMark, randomBytes(tombstoneRandomBytes)]);

/**
 * Too short for an object: a tombstone, or something of others. Nobody can read it, and that is all that its size
 * tells.
 */
export const isNoObject = (storedBytes: number): boolean => storedBytes < sealBytes;

/** Worth reading, to see whether it is one. */
export const mayBeTombstone = (storedBytes: number): boolean => storedBytes === tombstoneBytes;

/** Only we write this. */
export const isTombstone = (stored: Buffer): boolean =>
  stored.length === tombstoneBytes && stored.subarray(0, tombstoneMark.length).equals(tombstoneMark);

/**
 * Under a key of ours an object may take the place of older tombstones, too. Text is somebody's: all our keys under
 * conditions are those of JSON.
 */
export const canBeReplaced = (stored: Buffer): boolean => isTombstone(stored) || isOlderTombstone(stored);

const isOlderTombstone = (stored: Buffer): boolean =>
  stored.length === olderTombstoneBytes && !textForm.test(stored.toString("latin1"));
