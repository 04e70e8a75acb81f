/** Makes an `Idempotency-Key`. Browsers have `randomUUID` on secure pages only, and this everywhere. */
export function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
