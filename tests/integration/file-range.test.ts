import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiClient } from "../support/api-client.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

const text = "0123456789abcdefghijklmnopqrstuvwxyz";
let server: TestServer;
let api: ApiClient;
let id: string;

beforeAll(async () => {
  server = await startTestServer();
  api = new ApiClient(server.url, server.key);
  ({ id } = (await api.create()).sandbox);
  await put(text);
});
afterAll(() => server.dispose());

const filePath = (): string => `/sandboxes/${id}/files?path=letters.txt`;

async function put(body: string): Promise<void> {
  expect((await api.fetch("PUT", filePath(), { body })).status).toBe(200);
}

async function signedUrl(): Promise<string> {
  const signed = await api.ask<{ url: string }>("POST", `/sandboxes/${id}/files/sign`, { path: "letters.txt" });
  return signed.body.url;
}

type Get = (headers?: Record<string, string>) => Promise<Response>;
const ways: [string, Get][] = [
  ["the files route", (headers = {}) => api.fetch("GET", filePath(), { headers })],
  ["a signed URL", async (headers = {}) => fetch(await signedUrl(), { headers })],
];

describe.for(ways)("over %s", ([, get]) => {
  test("a range returns that part of the file, with Content-Range", async () => {
    const part = await get({ range: "bytes=2-5" });
    expect(part.status).toBe(206);
    expect(part.headers.get("content-range")).toBe("bytes 2-5/36");
    expect(part.headers.get("content-length")).toBe("4");
    expect(part.headers.get("content-disposition")).toBe("attachment");
    expect(await part.text()).toBe("2345");
    expect(await (await get({ range: "bytes=-3" })).text()).toBe("xyz");
  });

  test("a range after the end is refused with the size", async () => {
    const refused = await get({ range: "bytes=36-" });
    expect(refused.status).toBe(416);
    expect(refused.headers.get("content-range")).toBe("bytes */36");
    expect(await refused.json()).toMatchObject({ error: { code: "invalid_argument" } });
  });

  test("several ranges, and an invalid range, return the whole file", async () => {
    for (const range of ["bytes=0-1,4-5", "letters=0-1"]) {
      const whole = await get({ range });
      expect([whole.status, await whole.text()]).toEqual([200, text]);
    }
  });

  test("If-Range returns the part while the file is unchanged, and the whole file after a change", async () => {
    const etag = (await get({ range: "bytes=0-0" })).headers.get("etag") ?? "";
    expect(etag).toMatch(/^".+"$/);
    const same = await get({ range: "bytes=30-", "if-range": etag });
    expect([same.status, await same.text()]).toEqual([206, "uvwxyz"]);
    await put(text.toUpperCase());
    const other = await get({ range: "bytes=30-", "if-range": etag });
    expect([other.status, await other.text()]).toEqual([200, text.toUpperCase()]);
    await put(text);
  });

  test("a range of a missing file is not found", async () => {
    await api.fetch("DELETE", filePath());
    expect((await get({ range: "bytes=0-0" })).status).toBe(404);
    await put(text);
  });
});

test("a range of a special file returns all of it", async () => {
  await api.run(id, { shell: "ln -sf letters.txt link.txt" });
  const answer = await api.fetch("GET", `/sandboxes/${id}/files?path=link.txt`, { headers: { range: "bytes=2-5" } });
  expect([answer.status, await answer.text()]).toEqual([200, text]);
});

test("curl continues an interrupted download", async () => {
  const dir = await mkdtemp(join(tmpdir(), "atoll-range-"));
  try {
    const target = join(dir, "letters.txt");
    await writeFile(target, text.slice(0, 10));
    await promisify(execFile)("curl", ["-sSf", "-C", "-", "-o", target, await signedUrl()]);
    expect(await readFile(target, "utf8")).toBe(text);
    const { stdout } = await promisify(execFile)("curl", ["-sSfI", await signedUrl()]);
    expect(stdout).toMatch(/accept-ranges: bytes/i);
    expect(stdout).toMatch(/content-length: 36/i);
  } finally {
    await rm(dir, { recursive: true });
  }
});
