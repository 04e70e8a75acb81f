import { isSandboxError, SandboxError } from "@atoll/protocol";
import { z } from "zod";
import { maxSmallObjectBytes, type CallOptions, type ObjectStore, type ObjectVersion } from "../object-store.ts";

const CondemnedFile = z.strictObject({
  version: z.literal(1),
  /** By key, the time since when no manifest is known to need the object. */
  condemned: z.record(z.string(), z.number()),
});

/** Keeps the file a small object, whatever the length of its keys. Keys beyond this wait for the next time. */
const maxBytes = maxSmallObjectBytes / 2;
/** The bytes of an entry besides its key: quotes, a colon, a time and a comma. */
const entryBytes = 24;

export interface Condemned {
  sinceMs: ReadonlyMap<string, number>;
  version: ObjectVersion | undefined;
}

export async function readCondemned(store: ObjectStore, key: string, call: CallOptions): Promise<Condemned> {
  const got = await store.get(key, call);
  if (got === undefined) return { sinceMs: new Map(), version: undefined };
  try {
    const { condemned } = CondemnedFile.parse(JSON.parse(got.data.toString()));
    return { sinceMs: new Map(Object.entries(condemned)), version: got.info.version };
  } catch (cause) {
    throw new SandboxError("storage_failed", `Cannot collect garbage in ${store.place}: ${key} cannot be read`, {
      suggestion: `Remove ${key}; the collection then starts from the beginning.`,
      cause,
    });
  }
}

export async function writeCondemned(
  store: ObjectStore,
  key: string,
  next: Condemned,
  call: CallOptions,
): Promise<void> {
  const file = { version: 1, condemned: Object.fromEntries(fitting(next.sinceMs)) } as const;
  try {
    await store.put(key, Buffer.from(JSON.stringify(file)), { ...call, if: next.version ?? "absent" });
  } catch (error) {
    // Another collector has written what it saw, which serves as well.
    if (!isSandboxError(error, "conflict")) throw error;
  }
}

function fitting(sinceMs: ReadonlyMap<string, number>): [string, number][] {
  let bytes = 0;
  return [...sinceMs].filter(([key]) => {
    bytes += key.length + entryBytes;
    return bytes <= maxBytes;
  });
}
