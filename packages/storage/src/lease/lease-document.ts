import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

/** A server, as others know it. */
export const LeaseParty = z.strictObject({
  id: z.string().min(1).max(200),
  /** Where it can be asked, for whoever finds it in a lease. */
  url: z.string().max(2048),
});
export type LeaseParty = z.infer<typeof LeaseParty>;

/** Nobody is believed for longer than this, so that a bad document cannot lock a sandbox for ever. */
export const longestTtlMs = 600_000;

const Token = z.string().regex(/^[A-Za-z0-9_-]{8,64}$/);

/**
 * Somebody who has to show again and again that he is there. `session` is new with every attempt, also of the same
 * server; `renewal` grows with every write of his. Expiry is a duration: he is gone when others have seen the same
 * `renewal` for so long, by their own clocks.
 */
const Claimant = z.strictObject({
  ...LeaseParty.shape,
  session: Token,
  renewal: z.int().min(1),
  ttlMs: z.int().min(1).max(longestTtlMs),
});
export type Claimant = z.infer<typeof Claimant>;

/** `lease.json`. It is never removed while its sandbox can be asked for, because it is the memory of the epoch. */
export const LeaseDocument = z.strictObject({
  version: z.literal(1),
  /** Grows by one with every acquisition, and by nothing else. */
  epoch: z.int().min(1),
  owner: Claimant.nullable(),
  waiter: Claimant.nullable(),
  /** New with every write: no two versions have the same bytes, so that a store may name versions by their hash. */
  write: Token,
});
export type LeaseDocument = z.infer<typeof LeaseDocument>;

/** Throws `unsupported` for anything else: what is not understood is not taken over either. */
export function parseLeaseDocument(data: Uint8Array, key: string): LeaseDocument {
  const parsed = LeaseDocument.safeParse(parseJson(data));
  if (parsed.success) return parsed.data;
  throw new SandboxError("unsupported", `Cannot read the lease ${key}: it is none of this version`, {
    suggestion: "Look whether a newer server uses the same store.",
    details: { key, issues: parsed.error.issues.slice(0, 5).map(({ path, message }) => ({ path, message })) },
  });
}

export function encodeLeaseDocument(document: LeaseDocument): Uint8Array {
  return Buffer.from(`${JSON.stringify(document, undefined, 2)}\n`);
}

function parseJson(data: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(data).toString("utf8"));
  } catch {
    return undefined;
  }
}

export function partyOf({ id, url }: LeaseParty): LeaseParty {
  return { id, url };
}
