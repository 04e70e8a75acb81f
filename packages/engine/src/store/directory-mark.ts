import type { BigIntStats } from "node:fs";

/**
 * Identifies a directory, independent of its path. A copy is another directory, and so is a restored backup. No two
 * directories that exist at the same time have the same device and inode; devices get other numbers when the machine
 * starts again.
 */
export interface DirectoryMark {
  device: string;
  inode: string;
  /**
   * The time when it was made, in nanoseconds: inodes are used again, and the first ones of every disk have the same
   * numbers. Absent where the filesystem does not report it.
   */
  bornNs?: string | undefined;
}

export function markOf({ dev, ino, birthtimeNs, ctimeNs }: BigIntStats): DirectoryMark {
  // Where the filesystem has no birth time, Node returns the time of the last change.
  const isKnown = birthtimeNs > 0n && birthtimeNs !== ctimeNs;
  return { device: String(dev), inode: String(ino), ...(isKnown ? { bornNs: String(birthtimeNs) } : {}) };
}

/** Compares the marks, also across a restart of the machine. A birth time that only one of them has is ignored. */
export function isSameDirectory(one: Omit<DirectoryMark, "device">, two: Omit<DirectoryMark, "device">): boolean {
  if (one.inode !== two.inode) return false;
  return one.bornNs === undefined || two.bornNs === undefined || one.bornNs === two.bornNs;
}
