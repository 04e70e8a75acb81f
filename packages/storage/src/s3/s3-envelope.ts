import { randomBytes } from "node:crypto";

/**
 * S3 names a version by a hash of its bytes, so writing the same bytes again would look like the earlier version. Every
 * object therefore ends in random bytes of its own, which readers do not see. By these bytes a writer whose answer was
 * lost also recognises its own object.
 */
export const sealBytes = 16;

/**
 * Stands for a removed object until it can be deleted. It is shorter than any object, and unlike anything that other
 * programs put into a bucket. Every usable server honours the condition of a write, but not that of a removal; so a
 * write decides the removal.
 */
const tombstoneMark = Buffer.from("\0atoll\0");
const tombstoneRandomBytes = 8;
const tombstoneBytes = tombstoneMark.length + tombstoneRandomBytes;
/** Tombstones of earlier versions are random bytes only. One in two thousand of them reads like text. */
const olderTombstoneBytes = 8;
const textForm = /^[\t\n\r -~]*$/;

export const newSeal = (): Buffer => randomBytes(sealBytes);

export const newTombstone = (): Buffer => Buffer.concat([tombstoneMark, randomBytes(tombstoneRandomBytes)]);

/**
 * Whether an entry is too short for an object: a tombstone, or something of another program. It has no content for
 * readers, and its size shows no more than that.
 */
export const isNoObject = (storedBytes: number): boolean => storedBytes < sealBytes;

/** Whether an entry may be a tombstone and has to be read. */
export const mayBeTombstone = (storedBytes: number): boolean => storedBytes === tombstoneBytes;

/** Only Atoll writes this. */
export const isTombstone = (stored: Buffer): boolean =>
  stored.length === tombstoneBytes && stored.subarray(0, tombstoneMark.length).equals(tombstoneMark);

/**
 * Whether an object may replace this entry under a key of ours: tombstones, also those of earlier versions. Text
 * belongs to another program: all our keys under conditions are those of JSON.
 */
export const canBeReplaced = (stored: Buffer): boolean => isTombstone(stored) || isOlderTombstone(stored);

const isOlderTombstone = (stored: Buffer): boolean =>
  stored.length === olderTombstoneBytes && !textForm.test(stored.toString("latin1"));
