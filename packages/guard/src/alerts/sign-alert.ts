import { createHmac } from "node:crypto";

/**
 * Returns the value of the header `atoll-signature`: the time in seconds, and the HMAC-SHA256 of `<time>.<body>`. The
 * receiver refuses old times, so that a recorded alert cannot be sent again.
 */
export function signAlert(secret: string, body: string, atMs: number): string {
  const time = Math.floor(atMs / 1000);
  return `t=${time},v1=${createHmac("sha256", secret).update(`${time}.${body}`).digest("hex")}`;
}
