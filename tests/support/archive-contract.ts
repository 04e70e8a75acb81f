import { execFileSync } from "node:child_process";
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import type { Sandbox } from "@atoll/engine";
import type { DriverName } from "@atoll/protocol";
import { packDirectory, unpackArchive } from "@atoll/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "./test-engine.ts";

async function collect(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

/** Splits an archive into pieces of a size that is no multiple of a block. */
async function* pieces(archive: Buffer, size = 1000): AsyncGenerator<Buffer> {
  for (let at = 0; at < archive.byteLength; at += size) yield archive.subarray(at, at + size);
}

function tar(...args: string[]): Buffer {
  return execFileSync("tar", args, { maxBuffer: 64 * 1024 * 1024, stdio: ["ignore", "pipe", "ignore"] });
}

/** Lists every file and link below a directory, with its mode and its content. */
async function contentOf(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const lines = entries.map(async (entry) => {
    const path = join(entry.parentPath, entry.name);
    const content = entry.isFile() ? await readFile(path, "utf8") : entry.isSymbolicLink() ? await readlink(path) : "";
    return `${relative(directory, path)} ${((await lstat(path)).mode & 0o7777).toString(8)} ${content}`;
  });
  return (await Promise.all(lines)).toSorted();
}

/** Tests that directories of a sandbox go in and come out as archives, under every driver. */
export function archiveContract(driver: DriverName): void {
  describe(`archives under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;
    let local: string;

    beforeAll(async () => {
      host = await openTestEngine();
      sandbox = await host.engine.create({ driver });
      local = await mkdtemp(join(host.dataDir, "local-"));
      await mkdir(join(local, "tree/deep/er"), { recursive: true });
      await writeFile(join(local, "tree/a.txt"), "a\n");
      await writeFile(join(local, `tree/deep/${"long".repeat(40)}`), "long\n");
      await writeFile(join(local, "tree/deep/er/run.sh"), "echo hi\n", { mode: 0o755 });
      await symlink("../a.txt", join(local, "tree/deep/link"));
    });
    afterAll(() => host.dispose());

    test("a tree is the same after unpacking and packing, and belongs to the user", async () => {
      const archive = tar("-C", join(local, "tree"), "-cf", "-", ".");
      expect(await unpackArchive(sandbox, "/home/user/up/load", pieces(archive))).toEqual({ files: 4, bytes: 15 });
      const { output } = await runIn(sandbox, "cd up/load && stat -c '%U %a %n' a.txt deep/er/run.sh && cat deep/link");
      expect(output).toBe("user 644 a.txt\nuser 755 deep/er/run.sh\na\n");
      const back = join(local, "back");
      await mkdir(back);
      const packed = await collect(await packDirectory(sandbox, "/home/user/up/load"));
      execFileSync("tar", ["-C", back, "-xf", "-", "--no-same-owner"], { input: packed });
      expect(await contentOf(back)).toEqual(await contentOf(join(local, "tree")));
      await rm(back, { recursive: true });
    });

    test("an archive in POSIX form, with its padding, is unpacked, too", async () => {
      const archive = tar("-C", join(local, "tree"), "-H", "pax", "-b", "200", "-cf", "-", "deep");
      expect(await unpackArchive(sandbox, "/home/user/pax", pieces(archive, 7))).toMatchObject({ files: 3 });
    });

    test("permissions in the sandbox apply to packing and unpacking", async () => {
      const archive = tar("-C", join(local, "tree"), "-cf", "-", "a.txt");
      await expect(unpackArchive(sandbox, "/usr/share", pieces(archive))).rejects.toMatchObject({
        code: "permission_denied",
      });
      await expect(unpackArchive(sandbox, "/usr/share/new", pieces(archive))).rejects.toMatchObject({
        code: "permission_denied",
      });
      expect(await unpackArchive(sandbox, "/opt/new", pieces(archive), { user: "root" })).toMatchObject({ files: 1 });
      await runIn(sandbox, "mkdir /root/secret && echo x > /root/secret/x", { user: "root" });
      await runIn(sandbox, "chmod 700 /root", { user: "root" });
      await expect(packDirectory(sandbox, "/root/secret")).rejects.toMatchObject({ code: "permission_denied" });
    });

    test("packing fails before the first byte if it can, and later with an error", async () => {
      await expect(packDirectory(sandbox, "/nowhere")).rejects.toMatchObject({ code: "not_found" });
      await expect(packDirectory(sandbox, "/etc/passwd")).rejects.toMatchObject({ code: "not_found" });
      await runIn(sandbox, "mkdir half && echo 1 > half/open && echo 2 > half/shut && chmod 000 half/shut");
      const packing = await packDirectory(sandbox, "/home/user/half");
      await expect(collect(packing)).rejects.toMatchObject({
        code: "permission_denied",
        message: expect.stringContaining("shut"),
      });
    });

    test("packing ends in the sandbox when its reader stops reading", async () => {
      await runIn(sandbox, "mkdir big && head -c 50000000 /dev/zero > big/zeros");
      for await (const piece of await packDirectory(sandbox, "/home/user/big")) {
        expect(piece.byteLength).toBeGreaterThan(0);
        break;
      }
      expect((await runIn(sandbox, "pgrep -x tar || echo none")).output).toBe("none\n");
    });

    test("a refused entry keeps the files before it, and the error counts them", async () => {
      const work = join(local, "mixed");
      await mkdir(work);
      for (const name of ["1", "2", "3"]) await writeFile(join(work, name), name);
      const archive = tar("-C", work, "--transform", "s,^3,../3,", "-P", "-cf", "-", "1", "2", "3");
      await expect(unpackArchive(sandbox, "/home/user/mixed", pieces(archive))).rejects.toMatchObject({
        code: "invalid_argument",
        message: 'Cannot unpack into /home/user/mixed: the name "../3" leads out of it',
        details: { files: 2, bytes: 2 },
      });
      expect((await runIn(sandbox, "ls mixed")).output).toBe("1\n2\n");
    });

    test("the error for a truncated archive names the incomplete file", async () => {
      const work = join(local, "cut");
      await mkdir(work);
      await writeFile(join(work, "whole"), "w");
      await writeFile(join(work, "cut"), Buffer.alloc(100_000, "c"));
      const archive = tar("-C", work, "-cf", "-", "whole", "cut");
      await expect(unpackArchive(sandbox, "/home/user/cut", pieces(archive.subarray(0, 50_000)))).rejects.toMatchObject(
        {
          code: "invalid_argument",
          message: expect.stringContaining("it ends too early"),
          details: { files: 1, bytes: 1, incomplete: "cut" },
        },
      );
      expect((await runIn(sandbox, "cat cut/whole; pgrep -x tar")).output).toBe("w");
    });

    test("the error of a failing source is passed on", async () => {
      const archive = tar("-C", join(local, "tree"), "-cf", "-", ".");
      const failure = new Error("the client went away");
      async function* failing(): AsyncGenerator<Buffer> {
        yield archive.subarray(0, 1500);
        throw failure;
      }
      await expect(unpackArchive(sandbox, "/home/user/failing", failing())).rejects.toBe(failure);
    });

    test("too many entries, and too many bytes, are refused", async () => {
      const archive = tar("-C", join(local, "tree"), "-cf", "-", ".");
      await expect(unpackArchive(sandbox, "/home/user/many", pieces(archive), { maxEntries: 3 })).rejects.toMatchObject(
        { code: "limit_reached" },
      );
      await expect(unpackArchive(sandbox, "/home/user/large", pieces(archive), { maxBytes: 8 })).rejects.toMatchObject({
        code: "limit_reached",
        message: expect.stringContaining("more than 8 bytes"),
      });
    });

    test("an entry that cannot be written is named, and the others are written", async () => {
      await runIn(sandbox, "mkdir -p busy/a.txt/not-empty");
      const archive = tar("-C", join(local, "tree"), "-cf", "-", "a.txt", "deep/er");
      await expect(unpackArchive(sandbox, "/home/user/busy", pieces(archive))).rejects.toMatchObject({
        code: "file_error",
        message: expect.stringContaining("a.txt"),
      });
      expect((await runIn(sandbox, "cat busy/deep/er/run.sh")).output).toBe("echo hi\n");
    });

    test("a link in an archive does not lead out of the directory", async () => {
      const work = join(local, "trick");
      await mkdir(join(work, "way"), { recursive: true });
      await writeFile(join(work, "way/escaped"), "x");
      await symlink("/home/user", join(work, "link"));
      const first = tar("-C", work, "-cf", "-", "link");
      const second = tar("-C", work, "--transform", "s,^way,link,", "-cf", "-", "way/escaped");
      const both = Buffer.concat([first.subarray(0, 512), second]);
      await unpackArchive(sandbox, "/home/user/trick", pieces(both)).catch(() => undefined);
      expect((await runIn(sandbox, "ls escaped")).exitCode).not.toBe(0);
    });
  });
}
