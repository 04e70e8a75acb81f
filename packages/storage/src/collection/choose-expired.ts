/** One manifest as far as keeping and collecting care. */
export interface Manifest {
  key: string;
  /** Keys of all objects without which it is worth nothing: parts, and manifests that it builds on. */
  needs: readonly string[];
}

export interface DatedManifest extends Manifest {
  /** Manifests of one line follow each other, as the checkpoints of a sandbox do. */
  line: string;
  createdAtMs: number;
  /** Kept whatever the policy says: it has a name, or somebody is at it. */
  isPinned?: boolean;
}

export interface RetentionPolicy {
  /** So many of each line, the newest. At least 1. */
  keepLast: number;
  /** And all that are not older than this. */
  keepForMs?: number;
}

/** Manifests that may go. Never the newest of a line, and never one that something kept needs, directly or not. */
export function chooseExpired<T extends DatedManifest>(
  manifests: readonly T[],
  policy: RetentionPolicy,
  nowMs: number,
): T[] {
  const keepLast = Math.max(1, policy.keepLast);
  const kept = new Set<string>();
  for (const line of byLine(manifests)) {
    for (const [age, manifest] of line.entries()) {
      const isYoung = policy.keepForMs !== undefined && nowMs - manifest.createdAtMs <= policy.keepForMs;
      if (age < keepLast || isYoung || manifest.isPinned === true) kept.add(manifest.key);
    }
  }
  const needed = allNeeded(manifests, kept);
  return manifests.filter(({ key }) => !needed.has(key));
}

/** What these keys need, directly or not, and themselves. */
export function allNeeded(manifests: readonly Manifest[], keys: Iterable<string>): Set<string> {
  const needsOf = new Map(manifests.map(({ key, needs }) => [key, needs]));
  const needed = new Set(keys);
  // A set gives also what is added to it during the walk.
  for (const key of needed) for (const need of needsOf.get(key) ?? []) needed.add(need);
  return needed;
}

/**
 * The newest of each line first; of the same moment the one with the greater key, so that every server chooses alike.
 */
function byLine<T extends DatedManifest>(manifests: readonly T[]): T[][] {
  const lines = new Map<string, T[]>();
  for (const manifest of manifests) {
    const line = lines.get(manifest.line);
    if (line === undefined) lines.set(manifest.line, [manifest]);
    else line.push(manifest);
  }
  return [...lines.values()].map((line) =>
    line.toSorted((one, two) => two.createdAtMs - one.createdAtMs || (one.key < two.key ? 1 : -1)),
  );
}
