import { hkdfSync } from "node:crypto";

export const secretBytes = 32;

/** What the keys of a server are for: what is signed for one purpose cannot be used for another. */
export type KeyPurpose = "port tokens" | "file URLs" | "audit log";

/** Derives the key for one purpose from a server's secret. */
export function deriveKey(secret: Buffer, purpose: KeyPurpose): Buffer {
  return Buffer.from(hkdfSync("sha256", secret, "", `atoll ${purpose}`, secretBytes));
}
