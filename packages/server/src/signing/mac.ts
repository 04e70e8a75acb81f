import { createHmac, timingSafeEqual } from "node:crypto";

/** Authenticates a list of texts. Each goes in with its length, so that no two lists are the same bytes. */
export function mac(key: Buffer, parts: readonly string[]): string {
  const hmac = createHmac("sha256", key);
  for (const part of parts) hmac.update(`${Buffer.byteLength(part)}:${part}`);
  return hmac.digest("base64url");
}

/** Takes the same time wherever the two differ. */
export function isSameMac(expected: string, given: string): boolean {
  const [a, b] = [Buffer.from(expected), Buffer.from(given)];
  return a.byteLength === b.byteLength && timingSafeEqual(a, b);
}
