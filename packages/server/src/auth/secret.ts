import { createHash, randomBytes, timingSafeEqual } from "node:crypto";

/** 256 random bits: no dictionary helps, so a plain hash is enough to store. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

export function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

/** Takes the same time wherever the two differ. */
export function matchesHash(secret: string, hash: string): boolean {
  return timingSafeEqual(Buffer.from(hashSecret(secret), "hex"), Buffer.from(hash, "hex"));
}
