import type { BigIntStats } from "node:fs";

/**
 * Which directory it is, wherever it lies and whatever it is called. A copy is another one, and so is what a backup was
 * restored to. No two that are there at the same time have the same device and inode; devices get other numbers when
 * the machine starts again.
 */
export interface DirectoryMark {
  device: string;
  inode: string;
  /**
   * When it was made, in nanoseconds: inodes are used again, and the first ones of every disk have the same numbers.
   * Absent where the filesystem does not tell.
   */
  bornNs?: string | undefined;
}

export function markOf({ dev, ino, birthtimeNs, ctimeNs }: BigIntStats): DirectoryMark {
  // Where the kernel is not asked for it, the time of the last change stands in its place.
  const isKnown = birthtimeNs > 0n && birthtimeNs !== ctimeNs;
  return { device: String(dev), inode: String(ino), ...(isKnown ? { bornNs: String(birthtimeNs) } : {}) };
}

/** Also after the machine was started again. What only one of the two tells is not held against it. */
export function isSameDirectory(one: Omit<DirectoryMark, "device">, two: Omit<DirectoryMark, "device">): boolean {
  if (one.inode !== two.inode) return false;
  return one.bornNs === undefined || two.bornNs === undefined || one.bornNs === two.bornNs;
}
