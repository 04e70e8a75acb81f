import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { afterEach, beforeEach, expect, test } from "vitest";
import { TemplateUploads } from "../../src/archives/template-uploads.ts";

let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-uploads-"));
});
afterEach(async () => {
  await rm(dir, { recursive: true, force: true });
});

const { signal } = new AbortController();

test("files of a crashed server are removed at the next start", async () => {
  await writeFile(join(dir, "half"), "half an archive");
  await TemplateUploads.open(dir, 100);
  expect(await readdir(dir)).toEqual([]);
});

test("an archive exists while it is used, and is removed however that ends", async () => {
  const uploads = await TemplateUploads.open(dir, 8);
  let seen = "";
  await uploads.use(Readable.from([Buffer.from("arch"), Buffer.from("ive!")]), signal, async (archive) => {
    seen = await readFile(archive, "utf8");
  });
  expect([seen, await readdir(dir)]).toEqual(["archive!", []]);
  const failing = uploads.use(Readable.from([Buffer.from("x")]), signal, async () => {
    throw new Error("no archive");
  });
  await expect(failing).rejects.toThrow("no archive");
  expect(await readdir(dir)).toEqual([]);
});

test("an archive that is too large is refused by name, is not used, and leaves nothing", async () => {
  const uploads = await TemplateUploads.open(dir, 8);
  let isUsed = false;
  async function* endless(): AsyncGenerator<Buffer> {
    for (;;) yield Buffer.alloc(3);
  }
  const refused = uploads.use(Readable.from(endless()), signal, async () => {
    isUsed = true;
  });
  await expect(refused).rejects.toMatchObject({ code: "limit_reached", details: { setting: "maxTemplateBytes" } });
  expect([isUsed, await readdir(dir)]).toEqual([false, []]);
});
