import { randomBytes } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { CallOptions, ObjectStore } from "@atoll/storage";
import { z } from "zod";

const key = "identity.json";
const StoreIdentity = z.strictObject({ version: z.literal(1), id: z.string().regex(/^[\w-]{1,100}$/) });

/**
 * Returns the id that the first server gave to a store. It distinguishes one store from another, and from an empty one
 * in its place: a disk that is not mounted, or a mistyped prefix.
 */
export async function identifyStore(store: ObjectStore, options: CallOptions = {}): Promise<string> {
  const known = await read(store, options);
  if (known !== undefined) return known;
  const id = `store-${randomBytes(9).toString("base64url")}`;
  try {
    await store.put(key, Buffer.from(JSON.stringify({ version: 1, id })), { ...options, if: "absent" });
    return id;
  } catch (error) {
    // Another server was first, or this very write succeeded and its reply was lost.
    const found = await read(store, options).catch(() => undefined);
    if (found === undefined || !isSandboxError(error)) throw error;
    return found;
  }
}

async function read(store: ObjectStore, options: CallOptions): Promise<string | undefined> {
  const found = await store.get(key, options);
  if (found === undefined) return undefined;
  try {
    return StoreIdentity.parse(JSON.parse(found.data.toString("utf8"))).id;
  } catch (cause) {
    throw new SandboxError("storage_failed", `Cannot identify the store ${store.place}: ${key} cannot be read`, {
      suggestion: "Check whether a newer server uses the same store.",
      details: { key },
      cause,
    });
  }
}
