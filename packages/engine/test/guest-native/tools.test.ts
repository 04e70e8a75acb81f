import { randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest, ownUser } from "./native-guest.ts";
import { entries, outcome, tool } from "./run-tool.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const errno = {
  ENOENT: 2,
  EACCES: 13,
  EEXIST: 17,
  ENOTDIR: 20,
  EISDIR: 21,
  EINVAL: 22,
  EFBIG: 27,
  ENOSYS: 38,
  ENOTEMPTY: 39,
};

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "atoll-tools-"));
  chmodSync(dir, 0o755);
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

describe("stat and list", { timeout: testTimeoutMs }, () => {
  test("an entry says what the file is, and a link is not followed", async () => {
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/file`, "12345", { mode: 0o640 });
    symlinkSync("nowhere/else", `${dir}/link`);
    const [file] = await entries(await tool(guest, ["stat", `${dir}/file`]));
    const real = statSync(`${dir}/file`, { bigint: true });
    expect(file).toMatchObject({
      name: `${dir}/file`,
      type: "file",
      mode: 0o640,
      uid: Number(ownUser),
      links: 1,
      sizeBytes: 5,
      inode: real.ino,
      modifiedAtMs: Number(real.mtimeMs),
    });
    expect(await entries(await tool(guest, ["stat", `${dir}/link`]))).toMatchObject([
      { type: "link", target: "nowhere/else" },
    ]);
    expect(await entries(await tool(guest, ["stat", "/dev/null"]))).toMatchObject([{ type: "character device" }]);
    const missing = await tool(guest, ["stat", `${dir}/a\nb`]);
    expect(missing.exit?.exitCode).toBe(errno.ENOENT);
    expect(missing.stderr.toString()).toBe(`stat ${dir}/a?b: No such file or directory\n`);
  });

  test("a list has directories before their contents, to the depth that was asked for", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/a/b/c`, { recursive: true });
    writeFileSync(`${dir}/a/b/file`, "");
    symlinkSync("a", `${dir}/link`);
    const names = async (path: string, depth: string): Promise<string[]> =>
      (await entries(await tool(guest, ["list", path, depth]))).map((entry) => entry.name);
    expect((await names(dir, "1")).toSorted()).toEqual(["a", "link"]);
    const all = await names(dir, "99");
    expect(all.toSorted()).toEqual(["a", "a/b", "a/b/c", "a/b/file", "link"]);
    expect(all.indexOf("a")).toBeLessThan(all.indexOf("a/b"));
    expect(all.indexOf("a/b")).toBeLessThan(all.indexOf("a/b/file"));
    expect(await names(`${dir}/link`, "1")).toEqual(["b"]);
    expect(await outcome(guest, ["list", `${dir}/a/b/file`, "1"])).toBe(errno.ENOTDIR);
    expect(await outcome(guest, ["list", dir, "0"])).toBe(errno.EINVAL);
    expect(await outcome(guest, ["list", dir, "1x"])).toBe(errno.EINVAL);
  });

  test("a directory that the kernel opens and does not read is an error", async (context) => {
    context.skip(ownUser !== "0", "only root can have a process of two users");
    await using guest = await NativeGuest.start();
    // The owner may open the directory of its mappings, and must not read it, because the process is one of root's as
    // well.
    const script = [
      "import ctypes, os, sys",
      "os.seteuid(65534)",
      "ctypes.CDLL(None).prctl(4, 1)",
      "print(os.getpid(), flush=True)",
      "sys.stdin.read()",
    ];
    const id = guest.spawn(["python3", "-c", script.join("\n")], { stdin: true });
    const stream = guest.stream(id);
    await guest.until(() => stream.stdout.includes("\n") || stream.isOver);
    const path = `/proc/${Number(stream.stdout.toString())}/map_files`;
    const { exit, stderr } = await guest.run(["list", path, "1"], { tool: true, user: "65534" });
    expect(stderr.toString()).toContain(path);
    expect(exit?.exitCode).toBe(errno.EACCES);
  });

  test("a list may be long and deep", async () => {
    await using guest = await NativeGuest.start();
    let deep = dir;
    for (let level = 0; level < 100; level += 1) deep += `/level-${level}`;
    mkdirSync(deep, { recursive: true });
    for (let file = 0; file < 2000; file += 1) writeFileSync(`${dir}/file ${file}`, "");
    expect(await entries(await tool(guest, ["list", dir, "1000"]))).toHaveLength(2100);
  });
});

describe("read", { timeout: testTimeoutMs }, () => {
  test("gives the bytes of a range", async () => {
    await using guest = await NativeGuest.start();
    const data = randomBytes(1_000_000);
    writeFileSync(`${dir}/file`, data);
    const read = async (offset: number, length: number): Promise<Buffer> =>
      (await tool(guest, ["read", `${dir}/file`, String(offset), String(length)])).stdout;
    expect((await read(0, -1)).equals(data)).toBe(true);
    expect((await read(999_990, 100)).equals(data.subarray(999_990))).toBe(true);
    expect((await read(300_000, 300_000)).equals(data.subarray(300_000, 600_000))).toBe(true);
    expect((await read(2_000_000, -1)).byteLength).toBe(0);
    expect((await read(5, 0)).byteLength).toBe(0);
    expect(await outcome(guest, ["read", `${dir}/file`, "-1", "1"])).toBe(errno.EINVAL);
    expect(await outcome(guest, ["read", `${dir}/file`, "0", "-2"])).toBe(errno.EINVAL);
  });

  test("only regular files are read, and other files cannot block the tool", async () => {
    await using guest = await NativeGuest.start();
    await guest.shell(`mkfifo '${dir}/fifo'`);
    symlinkSync("fifo", `${dir}/link`);
    expect(await outcome(guest, ["read", dir, "0", "-1"])).toBe(errno.EISDIR);
    for (const path of [`${dir}/fifo`, `${dir}/link`, "/dev/zero"]) {
      expect(await outcome(guest, ["read", path, "0", "-1"])).toBe(errno.EINVAL);
      expect(await outcome(guest, ["write", path, "644", "replace"], "")).toBe(errno.EINVAL);
      expect(await outcome(guest, ["write", path, "644", "append"], "")).toBe(errno.EINVAL);
    }
  });
});

describe("write", { timeout: testTimeoutMs }, () => {
  test("replaces, appends and creates", async () => {
    await using guest = await NativeGuest.start();
    const path = `${dir}/new/directories/file`;
    const data = randomBytes(2_000_000);
    expect(await outcome(guest, ["write", path, "640", "create"], data)).toBe(0);
    expect(readFileSync(path).equals(data)).toBe(true);
    expect(statSync(path).mode & 0o7777).toBe(0o640);
    expect(await outcome(guest, ["write", path, "640", "create"], "x")).toBe(errno.EEXIST);
    chmodSync(path, 0o751);
    expect(await outcome(guest, ["write", path, "640", "replace"], "one")).toBe(0);
    expect(await outcome(guest, ["write", path, "640", "append"], "two")).toBe(0);
    expect(readFileSync(path, "utf8")).toBe("onetwo");
    expect(statSync(path).mode & 0o7777).toBe(0o751);
    expect(await outcome(guest, ["write", `${dir}/appended`, "604", "append"], "x")).toBe(0);
    expect(statSync(`${dir}/appended`).mode & 0o7777).toBe(0o604);
    expect(readdirSync(`${dir}/new/directories`)).toEqual(["file"]);
  });

  test("follows links when it replaces, and refuses them when it creates", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/far`);
    writeFileSync(`${dir}/far/file`, "old");
    symlinkSync("far/file", `${dir}/link`);
    symlinkSync(`${dir}/link`, `${dir}/link-to-link`);
    symlinkSync("far/missing", `${dir}/dangling`);
    symlinkSync("loop", `${dir}/loop`);
    expect(await outcome(guest, ["write", `${dir}/link-to-link`, "644", "replace"], "new")).toBe(0);
    expect(readFileSync(`${dir}/far/file`, "utf8")).toBe("new");
    expect(lstatSync(`${dir}/link-to-link`).isSymbolicLink()).toBe(true);
    expect(await outcome(guest, ["write", `${dir}/dangling`, "644", "create"], "x")).toBe(errno.EEXIST);
    expect(await outcome(guest, ["write", `${dir}/dangling`, "644", "replace"], "x")).toBe(0);
    expect(readFileSync(`${dir}/far/missing`, "utf8")).toBe("x");
    expect(await outcome(guest, ["write", `${dir}/loop`, "644", "replace"], "x")).toBe(40);
    expect(await outcome(guest, ["write", `${dir}/far`, "644", "replace"], "x")).toBe(errno.EISDIR);
    expect(readdirSync(dir).toSorted()).toEqual(["dangling", "far", "link", "link-to-link", "loop"]);
  });

  test.for([
    { what: "its whole path", path: () => `${dir}/file` },
    { what: "a path from where it works", path: () => "file" },
  ])("others see the old file until the end of stdin, and a kill leaves nothing, named by $what", async ({ path }) => {
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/file`, "old");
    const id = guest.spawn(["write", path(), "644", "replace"], { tool: true, stdin: true, cwd: dir });
    guest.stdin(id, 0, Buffer.alloc(50_000));
    await expect.poll(() => readdirSync(dir).length).toBe(2);
    expect(readFileSync(`${dir}/file`, "utf8")).toBe("old");
    guest.signal(id, 9, 1);
    expect((await guest.finish(id)).exit).toMatchObject({ signal: "SIGKILL" });
    expect(readdirSync(dir)).toEqual(["file"]);
    expect(readFileSync(`${dir}/file`, "utf8")).toBe("old");
  });

  test("a file that grows beyond a limit is an error and leaves nothing", async () => {
    await using guest = await NativeGuest.start();
    const limits = [{ resource: 1, soft: 1000, hard: 1000 }];
    const id = guest.spawn(["write", `${dir}/file`, "644", "replace"], { tool: true, stdin: true, limits });
    await guest.feed(id, Buffer.alloc(5000));
    expect((await guest.finish(id)).exit?.exitCode).toBe(errno.EFBIG);
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe("mkdir, rename and remove", { timeout: testTimeoutMs }, () => {
  test("directories are made one by one or with their parents", async () => {
    await using guest = await NativeGuest.start();
    expect(await outcome(guest, ["mkdir", `${dir}/a/b`, "700", "one"])).toBe(errno.ENOENT);
    expect(await outcome(guest, ["mkdir", `${dir}/a/b/`, "1777", "parents"])).toBe(0);
    expect(await outcome(guest, ["mkdir", `${dir}/a/b`, "700", "parents"])).toBe(0);
    expect(await outcome(guest, ["mkdir", `${dir}/a/b`, "700", "one"])).toBe(errno.EEXIST);
    writeFileSync(`${dir}/file`, "");
    expect(await outcome(guest, ["mkdir", `${dir}/file`, "700", "parents"])).toBe(errno.EEXIST);
    expect(await outcome(guest, ["mkdir", `${dir}/file/x`, "700", "parents"])).toBe(errno.ENOTDIR);
    expect(statSync(`${dir}/a/b`).mode & 0o7777).toBe(0o1777);
  });

  test("a rename replaces or keeps what is there", async () => {
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/a`, "a");
    writeFileSync(`${dir}/b`, "b");
    expect(await outcome(guest, ["rename", `${dir}/a`, `${dir}/b`, "keep"])).toBe(errno.EEXIST);
    expect(await outcome(guest, ["rename", `${dir}/a`, `${dir}/b`, "replace"])).toBe(0);
    expect(await outcome(guest, ["rename", `${dir}/b`, `${dir}/c`, "keep"])).toBe(0);
    expect(readFileSync(`${dir}/c`, "utf8")).toBe("a");
    expect(await outcome(guest, ["rename", `${dir}/b`, `${dir}/c`, "replace"])).toBe(errno.ENOENT);
  });

  test("a removal is of one file or of a whole tree, and never follows a link", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/keep`);
    writeFileSync(`${dir}/keep/file`, "");
    let deep = `${dir}/tree`;
    for (let level = 0; level < 50; level += 1) deep += `/level-${level}`;
    mkdirSync(deep, { recursive: true });
    for (let file = 0; file < 500; file += 1) writeFileSync(`${dir}/tree/file-${file}`, "");
    symlinkSync(`${dir}/keep`, `${dir}/tree/link`);
    symlinkSync(`${dir}/keep`, `${dir}/link`);
    expect(await outcome(guest, ["remove", `${dir}/tree`, "one"])).toBe(errno.ENOTEMPTY);
    expect(await outcome(guest, ["remove", `${dir}/tree`, "recursive"])).toBe(0);
    expect(await outcome(guest, ["remove", `${dir}/link`, "recursive"])).toBe(0);
    expect(await outcome(guest, ["remove", `${dir}/link`, "recursive"])).toBe(errno.ENOENT);
    expect(readdirSync(dir)).toEqual(["keep"]);
    expect(existsSync(`${dir}/keep/file`)).toBe(true);
    expect(await outcome(guest, ["remove", `${dir}/keep/file`, "one"])).toBe(0);
    expect(await outcome(guest, ["remove", `${dir}/keep`, "one"])).toBe(0);
  });
});

describe("every tool", { timeout: testTimeoutMs }, () => {
  test.for([
    [["nothing"], errno.ENOSYS],
    [["stat"], errno.EINVAL],
    [["read", "a", "b", "c"], errno.EINVAL],
    [["write", "/x", "9", "replace"], errno.EINVAL],
    [["write", "/x", "644", "sideways"], errno.EINVAL],
    [["mkdir", "/x", "77777", "one"], errno.EINVAL],
    [["rename", "/x", "/y", "maybe"], errno.EINVAL],
    [["remove", "/x", "slowly"], errno.EINVAL],
    [["watch", "/x", "deeply"], errno.EINVAL],
  ] as const)("%j exits with %i", async ([argv, code]) => {
    await using guest = await NativeGuest.start();
    const { exit, stderr } = await tool(guest, [...argv]);
    expect(exit?.exitCode).toBe(code);
    expect(stderr.toString().split("\n")).toHaveLength(2);
  });

  test("runs as the user who asks, whose rights the kernel checks", async (context) => {
    context.skip(ownUser !== "0", "only root can become another user");
    await using guest = await NativeGuest.start();
    writeFileSync(`${dir}/secret`, "x", { mode: 0o600 });
    const as = async (...argv: string[]): Promise<number | null | undefined> =>
      (await guest.run(argv, { tool: true, user: "nobody" })).exit?.exitCode;
    expect(await as("read", `${dir}/secret`, "0", "-1")).toBe(errno.EACCES);
    expect(await as("remove", `${dir}/secret`, "one")).toBe(errno.EACCES);
    expect(await as("mkdir", `${dir}/new`, "755", "one")).toBe(errno.EACCES);
    expect(await as("stat", `${dir}/secret`)).toBe(0);
  });
});
