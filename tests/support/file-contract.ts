import { randomBytes } from "node:crypto";
import type { Sandbox, WatchEvent } from "@atoll/engine";
import type { DriverName } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openTestEngine, runIn, type TestEngine } from "./test-engine.ts";

/** Tests what file operations must do, and what they must not be tricked into, under every driver. */
export function fileContract(driver: DriverName): void {
  describe(`files under ${driver}`, () => {
    let host: TestEngine;
    let sandbox: Sandbox;

    beforeAll(async () => {
      host = await openTestEngine();
      sandbox = await host.engine.create({ driver });
    });
    afterAll(async () => {
      await host.dispose();
    });

    test("a written file reads back the same and belongs to the given user", async () => {
      const bytes = randomBytes(3 * 1024 * 1024 + 17);
      await sandbox.files.write("/home/user/deep/er/file.bin", bytes, { mode: 0o640 });
      expect((await sandbox.files.readAll("/home/user/deep/er/file.bin")).equals(bytes)).toBe(true);
      expect(await sandbox.files.stat("/home/user/deep/er/file.bin")).toMatchObject({
        type: "file",
        mode: 0o640,
        uid: 1000,
        gid: 1000,
        sizeBytes: bytes.byteLength,
      });
      const part = sandbox.files.read("/home/user/deep/er/file.bin", { offset: 1000, length: 2000 });
      const chunks: Buffer[] = [];
      for await (const chunk of part) chunks.push(chunk);
      expect(Buffer.concat(chunks).equals(bytes.subarray(1000, 3000))).toBe(true);
    });

    test("append adds to a file, create refuses an existing one, replace discards the old content", async () => {
      const path = "/home/user/log";
      await sandbox.files.write(path, "one\n");
      await sandbox.files.write(path, "two\n", { how: "append" });
      expect((await sandbox.files.readAll(path)).toString()).toBe("one\ntwo\n");
      await expect(sandbox.files.write(path, "x", { how: "create" })).rejects.toMatchObject({ code: "already_exists" });
      await sandbox.files.write(path, "new");
      expect((await sandbox.files.readAll(path)).toString()).toBe("new");
    });

    test("a write whose source fails leaves the old file and no temporary file", async () => {
      await sandbox.files.write("/home/user/w/keep", "old");
      const source = async function* (): AsyncGenerator<Uint8Array> {
        yield Buffer.alloc(200_000);
        throw new Error("the source broke");
      };
      await expect(sandbox.files.write("/home/user/w/keep", source())).rejects.toThrow("the source broke");
      await expect(sandbox.files.write("w/keep", source())).rejects.toThrow("the source broke");
      expect((await sandbox.files.readAll("/home/user/w/keep")).toString()).toBe("old");
      expect((await sandbox.files.list("/home/user/w")).map(({ name }) => name)).toEqual(["keep"]);
    });

    test("list, mkdir, rename, exists and remove change and report the tree correctly", async () => {
      await sandbox.files.mkdir("/home/user/tree/a/b");
      await sandbox.files.write("/home/user/tree/a/f", "1");
      await runIn(sandbox, "ln -s /etc/passwd /home/user/tree/link; mkfifo /home/user/tree/pipe");
      const flat = await sandbox.files.list("/home/user/tree");
      expect(flat.map(({ name, type }) => [name, type]).toSorted(([a = ""], [b = ""]) => a.localeCompare(b))).toEqual([
        ["a", "directory"],
        ["link", "link"],
        ["pipe", "fifo"],
      ]);
      expect(flat.find(({ name }) => name === "link")?.target).toBe("/etc/passwd");
      const deep = await sandbox.files.list("/home/user/tree", { depth: 9 });
      expect(deep.map(({ name }) => name).toSorted()).toEqual(["a", "a/b", "a/f", "link", "pipe"]);
      await expect(sandbox.files.mkdir("/home/user/tree/x/y", { parents: false })).rejects.toMatchObject({
        code: "not_found",
      });
      await sandbox.files.rename("/home/user/tree/a/f", "/home/user/tree/g");
      await sandbox.files.write("/home/user/tree/h", "2");
      const keep = { replace: false };
      await expect(sandbox.files.rename("/home/user/tree/g", "/home/user/tree/h", keep)).rejects.toMatchObject({
        code: "already_exists",
      });
      await expect(sandbox.files.remove("/home/user/tree")).rejects.toThrow(/not empty|directory/);
      await sandbox.files.remove("/home/user/tree", { recursive: true });
      expect(await sandbox.files.exists("/home/user/tree")).toBe(false);
      expect(await sandbox.files.exists("/etc/passwd")).toBe(true);
    });

    test("the user's permissions apply", async () => {
      await expect(sandbox.files.write("/etc/passwd", "x")).rejects.toMatchObject({ code: "permission_denied" });
      await expect(sandbox.files.readAll("/etc/shadow")).rejects.toMatchObject({ code: "permission_denied" });
      await expect(sandbox.files.list("/root")).rejects.toMatchObject({ code: "permission_denied" });
      await sandbox.files.write("/root/by-root", "x", { user: "root" });
      expect(await sandbox.files.stat("/root/by-root", { user: "root" })).toMatchObject({ uid: 0 });
    });

    test("links, '..', devices, pipes and directories do not redirect a read or a write", async () => {
      await runIn(
        sandbox,
        "mkfifo p; ln -s / up; ln -s loop loop; ln -s ../../../../../../etc/hostname out; ln -s /dev/zero zero",
      );
      await expect(sandbox.files.readAll("/home/user/p")).rejects.toMatchObject({ details: { errno: "EINVAL" } });
      await expect(sandbox.files.readAll("/home/user/zero")).rejects.toMatchObject({ details: { errno: "EINVAL" } });
      await expect(sandbox.files.readAll("/dev/full")).rejects.toMatchObject({ details: { errno: "EINVAL" } });
      await expect(sandbox.files.readAll("/home/user")).rejects.toMatchObject({ details: { errno: "EISDIR" } });
      await expect(sandbox.files.readAll("/home/user/loop")).rejects.toMatchObject({ details: { errno: "ELOOP" } });
      await expect(sandbox.files.write("/home/user/p", "x", { how: "append" })).rejects.toMatchObject({
        details: { errno: "EINVAL" },
      });
      const inside = (await sandbox.files.readAll("/home/user/out")).toString().trim();
      const above = (await sandbox.files.readAll("/home/user/up/../../../../etc/hostname")).toString().trim();
      expect([inside, above]).toEqual([inside, inside]);
      const { hostname } = await import("node:os");
      expect(inside).not.toBe(hostname());
      await runIn(sandbox, "mkdir victim; touch victim/file; mkdir leaving; ln -s /home/user/victim leaving/link");
      await sandbox.files.remove("/home/user/leaving", { recursive: true });
      expect(await sandbox.files.exists("/home/user/victim/file")).toBe(true);
      await expect(sandbox.files.stat("bad\0path")).rejects.toMatchObject({ code: "invalid_argument" });
      await expect(sandbox.files.stat(`/${"x".repeat(5000)}`)).rejects.toMatchObject({
        details: { errno: "ENAMETOOLONG" },
      });
    });

    test("names with newlines and invalid bytes are listed unchanged", async () => {
      await runIn(sandbox, "mkdir odd; touch $'odd/new\\nline' 'odd/ünï cödé' 'odd/-rf *'");
      const names = (await sandbox.files.list("/home/user/odd")).map(({ name }) => name);
      expect(names.toSorted()).toEqual(["-rf *", "new\nline", "ünï cödé"]);
    });

    test("a recursive watch reports changes, in new directories too, with an increasing cursor", async () => {
      await sandbox.files.mkdir("/home/user/watched/old");
      const abort = new AbortController();
      const events: WatchEvent[] = [];
      const waiting = (async () => {
        for await (const event of sandbox.files.watch("/home/user/watched", {
          recursive: true,
          signal: abort.signal,
        })) {
          events.push(event);
          if (event.kind === "watching")
            await runIn(sandbox, "cd watched; echo 1 > old/a; mkdir -p new/deep; echo 2 > new/deep/b");
          if (event.path === "new/deep/b" && event.kind === "created")
            await runIn(sandbox, "cd watched; mv old/a new/c; rm new/c; touch done");
          if (event.path === "done") abort.abort();
        }
      })();
      await waiting.catch(() => undefined);
      const changes = events.map(({ kind, path }) => `${kind} ${path}`);
      expect(changes).toEqual(
        expect.arrayContaining([
          "created old/a",
          "written old/a",
          "created new",
          "created new/deep",
          "created new/deep/b",
          "moved_away old/a",
          "moved_here new/c",
          "removed new/c",
          "created done",
        ]),
      );
      expect(events.map(({ cursor }) => cursor)).toEqual(events.map((_, index) => index + 1));
      const [away, here] = ["moved_away", "moved_here"].map(
        (kind) => events.find((event) => event.kind === kind)?.cookie,
      );
      expect(away).toBe(here);
    });
  });
}
