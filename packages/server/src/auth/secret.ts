import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** Returns 256 random bits as text. No dictionary can guess them, so it is safe to store a plain hash. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

export function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

/** Compares in a time that does not depend on where the two differ. */
export function matchesHash(secret: string, hash: string): boolean {
  return timingSafeEqual(Buffer.from(hashSecret(secret), "hex"), Buffer.from(hash, "hex"));
}
