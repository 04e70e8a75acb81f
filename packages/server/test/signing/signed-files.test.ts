import { EventEmitter, once } from "node:events";
import { createServer, request as httpRequest, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { SandboxError, SandboxId } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { SignedFiles, type SignedFilesOptions } from "../../src/signing/signed-files.ts";
import { UrlSigner, type FileGrant } from "../../src/signing/url-signer.ts";

const id = SandboxId.parse("abcdefghij0123456789");
const signer = new UrlSigner(Buffer.alloc(32, 1));
const stored = new Map<string, Buffer>();
const uses: { bytes: number; error?: unknown }[] = [];
const revocation = new Map<string, AbortController>();
let visitors = 0;
let server: Server;
let base: string;

beforeEach(async () => {
  stored.clear();
  uses.length = 0;
  const signed = new SignedFiles({
    signer,
    untilRevoked: (keyId) => revocation.get(keyId)?.signal ?? AbortSignal.abort(),
    bodyTimeoutMs: 1_000,
    acquire: async ({ sandboxId }) => {
      if (sandboxId !== id) throw new SandboxError("not_found", `Cannot find sandbox ${sandboxId}`);
      visitors += 1;
      const leave = (): void => void (visitors -= 1);
      const files: Awaited<ReturnType<SignedFilesOptions["acquire"]>>["files"] = {
        stat: async (path) => {
          const sizeBytes = stored.get(path)?.byteLength;
          if (sizeBytes === undefined) throw new SandboxError("not_found", `Cannot read ${path}: no such file`);
          const rest = { mode: 0o644, uid: 0, gid: 0, links: 1, inode: 1n, modifiedAtMs: 0 };
          return { type: "file", name: path, sizeBytes, ...rest };
        },
        read: async function* (path, options) {
          const content = stored.get(path);
          if (content === undefined) throw new SandboxError("not_found", `Cannot read ${path}: no such file`);
          yield content.subarray(0, 3);
          if (path === "waits") await once(new EventEmitter(), "never", { ...options });
          if (path === "breaks") throw new SandboxError("sandbox_ended", "Cannot go on");
          yield content.subarray(3);
        },
        write: async (path, content) => {
          const pieces: Uint8Array[] = [];
          for await (const piece of content as AsyncIterable<Uint8Array>) pieces.push(piece);
          stored.set(path, Buffer.concat(pieces));
        },
      };
      return { files, leave };
    },
    onUse: (use) => uses.push(use),
  });
  server = createServer((request, response) => {
    if (!signed.handle(request, response)) response.writeHead(404).end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const url = (grant: Partial<FileGrant>): string =>
  base +
  signer.sign({ method: "GET", sandboxId: id, path: "f", user: "user", expiresAtMs: Date.now() + 60_000, ...grant });

test("a file that one URL uploads is downloaded by the other, as an attachment", async () => {
  const put = await fetch(url({ method: "PUT" }), { method: "PUT", body: "<script>" });
  expect(put.status).toBe(204);
  const got = await fetch(url({}));
  expect(await got.text()).toBe("<script>");
  expect(got.headers.get("content-disposition")).toBe("attachment");
  expect(got.headers.get("x-content-type-options")).toBe("nosniff");
  expect(uses.map(({ bytes }) => bytes)).toEqual([8, 8]);
  expect((await fetch(url({}), { method: "HEAD" })).status).toBe(200);
});

test("invalid URLs have one error, and only a valid URL shows whether a file or sandbox is missing", async () => {
  const forged = await fetch(`${base}/signed/x.y/z`);
  expect(forged.status).toBe(403);
  expect(await forged.json()).toMatchObject({ error: { code: "permission_denied" } });
  expect((await fetch(url({}))).status).toBe(404);
  expect((await fetch(url({ sandboxId: SandboxId.parse("zzzzzzzzzz0123456789") }))).status).toBe(404);
  expect((await fetch(`${base}/other`)).status).toBe(404);
});

test("a read that fails ends the connection", async () => {
  stored.set("breaks", Buffer.from("content"));
  await expect(fetch(url({ path: "breaks" })).then((response) => response.text())).rejects.toThrow("terminated");
  expect(uses).toMatchObject([{ bytes: 3, error: { code: "sandbox_ended" } }]);
});

test("a client that leaves half-way writes nothing", async () => {
  const request = httpRequest(url({ method: "PUT" }), { method: "PUT", headers: { "content-length": "100" } });
  request.on("error", () => undefined);
  request.write("half");
  await once(server, "request");
  request.destroy();
  await expect.poll(() => uses.length).toBe(1);
  expect(stored.has("f")).toBe(false);
});

test("the sandbox is retained as long as a transfer takes, however it ends", async () => {
  const upload = httpRequest(url({ method: "PUT" }), { method: "PUT" });
  upload.on("error", () => undefined).write("first");
  await expect.poll(() => visitors).toBe(1);
  upload.end("last");
  await once(upload, "response");
  expect([stored.get("f")?.toString(), visitors]).toEqual(["firstlast", 0]);
  expect((await fetch(url({ path: "missing" }))).status).toBe(404);
  stored.set("breaks", Buffer.from("content"));
  await expect(fetch(url({ path: "breaks" })).then((response) => response.text())).rejects.toThrow("terminated");
  await expect.poll(() => visitors).toBe(0);
});

test("an upload that stops is disconnected, and releases the sandbox", async () => {
  const upload = httpRequest(url({ method: "PUT" }), { method: "PUT" });
  upload.write("first");
  await once(upload, "error");
  await expect.poll(() => visitors).toBe(0);
  expect(stored.has("f")).toBe(false);
  expect(uses).toMatchObject([{ bytes: 5, error: expect.anything() }]);
});

describe("a URL that was signed with a key", () => {
  beforeEach(() => {
    revocation.set("key", new AbortController());
    stored.set("f", Buffer.from("content"));
  });

  test("is valid until the key is revoked, and then refused like any invalid one", async () => {
    expect(await (await fetch(url({ keyId: "key" }))).text()).toBe("content");
    revocation.get("key")?.abort();
    for (const refused of [url({ keyId: "key" }), url({ keyId: "unknown" })]) {
      const answer = await fetch(refused);
      expect([answer.status, await answer.json()]).toEqual([
        403,
        {
          error: expect.objectContaining({
            code: "permission_denied",
            message: expect.stringMatching(/invalid or has expired/),
          }),
        },
      ]);
    }
  });

  test("ends transfers in progress when the key is revoked", async () => {
    stored.set("waits", Buffer.from("content"));
    const answer = await fetch(url({ path: "waits", keyId: "key" }));
    expect([answer.status, visitors]).toEqual([200, 1]);
    revocation.get("key")?.abort();
    await expect(answer.text()).rejects.toThrow("terminated");
    await expect.poll(() => visitors).toBe(0);
  });
});
