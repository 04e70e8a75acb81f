import { SandboxError } from "@atoll/protocol";
import { z } from "zod";

/** A server, as other servers know it. */
export const LeaseParty = z.strictObject({
  id: z.string().min(1).max(200),
  /** The address for requests of servers that find this one in a lease. */
  url: z.string().max(2048),
});
export type LeaseParty = z.infer<typeof LeaseParty>;

/** No claim is valid for longer than this, so that a bad document cannot lock a sandbox for ever. */
export const longestTtlMs = 600_000;

const Token = z.string().regex(/^[A-Za-z0-9_-]{8,64}$/);

/**
 * A server that has to renew its claim again and again. `session` is new with every attempt, also of the same server;
 * `renewal` grows with every write of that server. The claim expires when others have seen the same `renewal` for the
 * whole duration, by their own clocks.
 */
const Claimant = z.strictObject({
  ...LeaseParty.shape,
  session: Token,
  renewal: z.int().min(1),
  ttlMs: z.int().min(1).max(longestTtlMs),
});
export type Claimant = z.infer<typeof Claimant>;

/** The content of `lease.json`. It is never removed while its sandbox exists, because it keeps the epoch. */
export const LeaseDocument = z.strictObject({
  version: z.literal(1),
  /** Grows by one with every acquisition and never otherwise. */
  epoch: z.int().min(1),
  owner: Claimant.nullable(),
  waiter: Claimant.nullable(),
  /** It is new with every write: no two versions have the same bytes, so a store may name versions by their hash. */
  write: Token,
});
export type LeaseDocument = z.infer<typeof LeaseDocument>;

/** Throws `unsupported` for anything else: a document that this version does not understand is not taken over. */
export function parseLeaseDocument(data: Uint8Array, key: string): LeaseDocument {
  const parsed = LeaseDocument.safeParse(parseJson(data));
  if (parsed.success) return parsed.data;
  throw new SandboxError(
    "unsupported",
    `Cannot read the lease ${key}: it has another format than this version writes`,
    {
      suggestion: "Check whether a newer server uses the same store.",
      details: { key, issues: parsed.error.issues.slice(0, 5).map(({ path, message }) => ({ path, message })) },
    },
  );
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
