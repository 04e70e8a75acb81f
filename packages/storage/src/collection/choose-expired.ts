/** What the collector needs to know of a manifest. */
export interface Manifest {
  key: string;
  /** The keys of all objects that the manifest cannot be used without: parts, and manifests that it builds on. */
  needs: readonly string[];
}

export interface DatedManifest extends Manifest {
  /** Manifests of one line follow each other, as the checkpoints of a sandbox do. */
  line: string;
  createdAtMs: number;
  /** Whether the manifest is kept whatever the policy says, because it has a name or is in use. */
  isPinned?: boolean;
}

export interface RetentionPolicy {
  /** How many of the newest manifests of each line are kept. At least 1. */
  keepLast: number;
  /** Manifests that are not older than this are kept too. */
  keepForMs?: number;
}

/**
 * Returns the manifests that may be removed: never the newest of a line, and never one that a kept manifest needs,
 * directly or not.
 */
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

/** Returns these keys and all keys that they need, directly or not. */
export function allNeeded(manifests: readonly Manifest[], keys: Iterable<string>): Set<string> {
  const needsOf = new Map(manifests.map(({ key, needs }) => [key, needs]));
  const needed = new Set(keys);
  // A loop over a set also visits what is added to the set during the loop.
  for (const key of needed) for (const need of needsOf.get(key) ?? []) needed.add(need);
  return needed;
}

/**
 * Sorts each line newest first. Of manifests with the same time the one with the greater key comes first, so that every
 * server chooses the same.
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
