import { SandboxError, SandboxId } from "@atoll/protocol";
import { z } from "zod";
import { isSameMac, mac } from "./mac.ts";

/** What a signed URL allows: access to one file in one direction, as one user, for a limited time. */
export const FileGrant = z.strictObject({
  method: z.enum(["GET", "PUT"]),
  sandboxId: SandboxId,
  path: z.string().min(1).max(4096),
  user: z.string().min(1).max(63),
  expiresAtMs: z.int(),
  /** The principal and holder that signed it: the URL also works while they hold the sandbox. */
  by: z.strictObject({ who: z.string(), holder: z.string() }).optional(),
  /** The API key with which it was signed: the URL is valid no longer than the key. */
  keyId: z.string().optional(),
});
export type FileGrant = z.infer<typeof FileGrant>;

/** The path prefix of signed URLs. */
const prefix = "/signed/";

/**
 * Creates and verifies URLs of files that work without a key: `/signed/<grant>.<signature>/<file name>`. The grant in
 * the URL can be read by every client; the name at the end is for people and for programs that save the file under it,
 * and is not checked.
 */
export class UrlSigner {
  #key: Buffer;

  constructor(key: Buffer) {
    this.#key = key;
  }

  /** Returns the path of the URL, with the slash after the host. */
  sign(grant: FileGrant): string {
    const text = JSON.stringify(FileGrant.parse(grant));
    const name = grant.path.split("/").findLast((part) => part !== "") ?? "file";
    return `${prefix}${Buffer.from(text).toString("base64url")}.${this.#macOf(grant)}/${encodeURIComponent(name)}`;
  }

  /** Reports whether this server has to answer the URL, valid or not. */
  isSigned(url: string): boolean {
    return url.startsWith(prefix);
  }

  /**
   * Returns the grant of a valid URL. The error is the same whether the URL is forged, expired or for something else. A
   * grant for GET also allows HEAD.
   */
  verify(method: string, url: string, nowMs: number = Date.now()): FileGrant {
    const [, text = "", signature = ""] = /^\/signed\/([\w-]{1,12000})\.([\w-]{43})(?:[/?]|$)/.exec(url) ?? [];
    const grant = parseGrant(text);
    const isGenuine = isSameMac(grant === undefined ? "" : this.#macOf(grant), signature);
    const isForThis = grant?.method === (method === "HEAD" ? "GET" : method);
    if (grant !== undefined && isGenuine && isForThis && grant.expiresAtMs > nowMs) return grant;
    throw invalidUrl();
  }

  /**
   * Signs all fields. Each absent field shortens the list by a different number, so that no list can be taken for
   * another.
   */
  #macOf({ method, sandboxId, path, user, expiresAtMs, by, keyId }: FileGrant): string {
    const signer = [...(by === undefined ? [] : [by.who, by.holder]), ...(keyId === undefined ? [] : [keyId])];
    return mac(this.#key, [method, sandboxId, path, user, String(expiresAtMs), ...signer]);
  }
}

export function invalidUrl(): SandboxError {
  return new SandboxError("permission_denied", "Cannot use this URL: it is invalid or has expired");
}

function parseGrant(text: string): FileGrant | undefined {
  try {
    return FileGrant.safeParse(JSON.parse(Buffer.from(text, "base64url").toString("utf8"))).data;
  } catch {
    return undefined;
  }
}
