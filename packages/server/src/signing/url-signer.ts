import { SandboxError, SandboxId } from "@atoll/protocol";
import { z } from "zod";
import { isSameMac, mac } from "./mac.ts";

/** What a signed URL allows its holder: one file, one direction, as one user, for a while. */
export const FileGrant = z.strictObject({
  method: z.enum(["GET", "PUT"]),
  sandboxId: SandboxId,
  path: z.string().min(1).max(4096),
  user: z.string().min(1).max(63),
  expiresAtMs: z.int(),
  /** Who signed it under the name of a holder: for them it works also while they hold the sandbox. */
  by: z.strictObject({ who: z.string(), holder: z.string() }).optional(),
  /** The API key with which it was signed: it is good for no longer than that one. */
  keyId: z.string().optional(),
});
export type FileGrant = z.infer<typeof FileGrant>;

/** Signed URLs live under here. */
const prefix = "/signed/";

/**
 * Makes and checks URLs of files that work without a key: `/signed/<grant>.<signature>/<file name>`. The grant stands
 * in the URL for everybody to read; the name at the end is for people and programs that save the file under it, and
 * means nothing.
 */
export class UrlSigner {
  #key: Buffer;

  constructor(key: Buffer) {
    this.#key = key;
  }

  /** The path of the URL, from the slash after the host on. */
  sign(grant: FileGrant): string {
    const text = JSON.stringify(FileGrant.parse(grant));
    const name = grant.path.split("/").findLast((part) => part !== "") ?? "file";
    return `${prefix}${Buffer.from(text).toString("base64url")}.${this.#macOf(grant)}/${encodeURIComponent(name)}`;
  }

  /** Whether this is one of ours to answer, valid or not. */
  isSigned(url: string): boolean {
    return url.startsWith(prefix);
  }

  /**
   * Whatever is wrong with it, forged, expired or for something else, the answer is the same. HEAD asks for less than
   * GET allows.
   */
  verify(method: string, url: string, nowMs: number = Date.now()): FileGrant {
    const [, text = "", signature = ""] = /^\/signed\/([\w-]{1,12000})\.([\w-]{43})(?:[/?]|$)/.exec(url) ?? [];
    const grant = parseGrant(text);
    const isGenuine = isSameMac(grant === undefined ? "" : this.#macOf(grant), signature);
    const isForThis = grant?.method === (method === "HEAD" ? "GET" : method);
    if (grant !== undefined && isGenuine && isForThis && grant.expiresAtMs > nowMs) return grant;
    throw invalidUrl();
  }

  /** With each field that is absent the list is shorter by another number, so that none passes for another. */
  #macOf({ method, sandboxId, path, user, expiresAtMs, by, keyId }: FileGrant): string {
    const signer = [...(by === undefined ? [] : [by.who, by.holder]), ...(keyId === undefined ? [] : [keyId])];
    return mac(this.#key, [method, sandboxId, path, user, String(expiresAtMs), ...signer]);
  }
}

export function invalidUrl(): SandboxError {
  return new SandboxError("permission_denied", "Cannot use this URL: it is not valid, or not any more");
}

function parseGrant(text: string): FileGrant | undefined {
  try {
    return FileGrant.safeParse(JSON.parse(Buffer.from(text, "base64url").toString("utf8"))).data;
  } catch {
    return undefined;
  }
}
