import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";

/** The part of a sandbox's token that is stored. */
export interface StoredToken {
  tokenHash: string;
  /** The salt, only for a token of an idempotent request. */
  tokenSalt?: string | undefined;
}

/**
 * Creates a token of 256 bits that cannot be guessed. For an idempotent request it is derived from a random salt and
 * the request's key: a client that repeats the request gets the same token, and what is stored is not enough to derive
 * it.
 */
export function issueToken(idempotencyKey: string | undefined): { token: string; stored: StoredToken } {
  if (idempotencyKey === undefined) {
    const token = `sbt_${randomBytes(32).toString("base64url")}`;
    return { token, stored: { tokenHash: hash(token) } };
  }
  const tokenSalt = randomBytes(32).toString("base64url");
  const token = derive(tokenSalt, idempotencyKey);
  return { token, stored: { tokenHash: hash(token), tokenSalt } };
}

/** Returns the token of an idempotent request that is repeated. */
export function issueTokenAgain({ tokenSalt }: StoredToken, idempotencyKey: string): string {
  if (tokenSalt === undefined) throw new Error("Only the token of an idempotent request can be issued again");
  return derive(tokenSalt, idempotencyKey);
}

/** Compares in a time that does not depend on where the two differ. */
export function matchesToken({ tokenHash }: StoredToken, token: string): boolean {
  return timingSafeEqual(Buffer.from(hash(token), "hex"), Buffer.from(tokenHash, "hex"));
}

function derive(salt: string, idempotencyKey: string): string {
  return `sbt_${createHmac("sha256", salt).update(idempotencyKey).digest("base64url")}`;
}

function hash(token: string): string {
  return createHash("sha256").update(token).digest("hex");
}
