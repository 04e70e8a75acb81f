import { randomBytes } from "node:crypto";

/**
 * S3 names a version by a hash of its bytes, so that the same bytes written again would pass for the version of before. Every
 * object therefore ends in random bytes of its own, which readers do not see. They also tell a writer whose answer was lost
 * that the object is its own.
 */
export const sealBytes = 16;

/**
 * What stands for a removed object until it can be deleted: shorter than any object. A write under a condition is kept by every
 * server that is worth using, a removal is not; so the removal is decided by the write.
 */
const tombstoneBytes = 8;

export const newSeal = (): Buffer => randomBytes(sealBytes);

export const newTombstone = (): Buffer => randomBytes(tombstoneBytes);

export const isTombstone = (storedBytes: number): boolean => storedBytes < sealBytes;
