import { SandboxId } from "@atoll/protocol";
import { describe, expect, test } from "vitest";
import { UrlSigner, type FileGrant } from "../../src/signing/url-signer.ts";

const grant: FileGrant = {
  method: "GET",
  sandboxId: SandboxId.parse("abcdefghij0123456789"),
  path: "/home/user/ü b/report.pdf",
  user: "user",
  expiresAtMs: 1_000_000,
};
const signer = new UrlSigner(Buffer.alloc(32, 1));
const url = signer.sign(grant);
const before = 999_999;
const refusal = "Cannot use this URL: it is invalid or has expired";

test("a signed URL returns its grant, and ends with the file's name", () => {
  expect(signer.verify("GET", url, before)).toEqual(grant);
  expect(signer.verify("HEAD", url, before)).toEqual(grant);
  expect(url.endsWith("/report.pdf")).toBe(true);
  expect(signer.sign({ ...grant, path: "a/ü b?#" }).endsWith("/%C3%BC%20b%3F%23")).toBe(true);
});

test("the name at its end is not checked", () => {
  expect(signer.verify("GET", url.replace(/[^/]*$/, "other?x=1"), before)).toEqual(grant);
  expect(signer.verify("GET", url.replace(/\/[^/]*$/, ""), before)).toEqual(grant);
});

describe("every other URL is refused with the same message", () => {
  const reforge = (change: Partial<FileGrant> & { extra?: unknown }): string => {
    const [, signature] = /\.([\w-]{43})\//.exec(url) ?? [];
    return `/signed/${Buffer.from(JSON.stringify({ ...grant, ...change })).toString("base64url")}.${signature}/x`;
  };
  test.for([
    ["expired", url, "GET", 1_000_000],
    ["another method", url, "PUT", before],
    ["no method of ours", url, "DELETE", before],
    ["another path", reforge({ path: "/etc/shadow" }), "GET", before],
    ["another user", reforge({ user: "root" }), "GET", before],
    ["another sandbox", reforge({ sandboxId: SandboxId.parse("zzzzzzzzzz0123456789") }), "GET", before],
    ["the key that signed it", reforge({ keyId: "k" }), "GET", before],
    ["a later end", reforge({ expiresAtMs: 9e12 }), "GET", before],
    ["writing instead of reading", reforge({ method: "PUT" }), "PUT", before],
    ["something added", reforge({ extra: 1 }), "GET", before],
    ["another key", new UrlSigner(Buffer.alloc(32, 2)).sign(grant), "GET", before],
    ["a signature cut short", url.replace(/\.[\w-]{43}/, (text) => text.slice(0, -1)), "GET", before],
    ["a changed signature", url.replace(/\.([\w-])/, (_, first) => `.${first === "A" ? "B" : "A"}`), "GET", before],
    ["no grant", "/signed/.x/y", "GET", before],
    ["not JSON", `/signed/eHg.${"A".repeat(43)}/x`, "GET", before],
  ] as const)("%s", ([, forged, method, nowMs]) => {
    expect(() => signer.verify(method, forged, nowMs)).toThrowError(
      expect.objectContaining({ code: "permission_denied", message: refusal, details: {} }),
    );
  });
});

test("the key that signed it is part of it, and cannot be removed", () => {
  const signed = signer.sign({ ...grant, keyId: "k" });
  expect(signer.verify("GET", signed, before)).toEqual({ ...grant, keyId: "k" });
  const text = Buffer.from(JSON.stringify(grant)).toString("base64url");
  expect(() => signer.verify("GET", signed.replace(/signed\/[\w-]+/, `signed/${text}`), before)).toThrow(refusal);
});

test("parts cannot be moved from one field to the next", () => {
  const a = signer.sign({ ...grant, path: "/a", user: "bc" });
  const b = signer.sign({ ...grant, path: "/ab", user: "c" });
  const macOf = (text: string): string | undefined => /\.([\w-]{43})\//.exec(text)?.[1];
  expect(macOf(a)).not.toBe(macOf(b));
});
