import { createHmac, timingSafeEqual } from "node:crypto";

/** Authenticates a list of texts. Each is hashed with its length, so that no two lists have the same bytes. */
export function mac(key: Buffer, parts: readonly string[]): string {
  const hmac = createHmac("sha256", key);
  for (const part of parts) hmac.update(`${Buffer.byteLength(part)}:${part}`);
  return hmac.digest("base64url");
}

/** Compares in a time that does not depend on where the two differ. */
export function isSameMac(expected: string, given: string): boolean {
  const [a, b] = [Buffer.from(expected), Buffer.from(given)];
  return a.byteLength === b.byteLength && timingSafeEqual(a, b);
}
