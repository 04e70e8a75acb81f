import { randomBytes } from "node:crypto";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { PayloadWriter } from "../../src/guest/wire.ts";
import { buildTimeoutMs, guestProgram, testTimeoutMs } from "./guest-program.ts";
import { NativeGuest, ownUser } from "./native-guest.ts";
import { entries, outcome, tool } from "./run-tool.ts";

beforeAll(() => guestProgram("sanitized"), buildTimeoutMs);

const errno = { EPERM: 1, ENOENT: 2, EINVAL: 22, EBADMSG: 74 };

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "atoll-tools-"));
  chmodSync(dir, 0o755);
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

describe("nodes and mknodes", { timeout: testTimeoutMs }, () => {
  const never = -(2n ** 63n);
  const ask = (...paths: string[]): string => paths.map((path) => `${never} ${path}\0`).join("");

  /** Encodes an entry in the form that `nodes` writes and `mknodes` reads. */
  function node(name: string | Buffer, { type = "p", mode = 0o640, ns = 0n, target = "" } = {}): Buffer {
    const entry = new PayloadWriter()
      .u8(type.charCodeAt(0))
      .u32(mode)
      .u32(Number(ownUser))
      .u32(process.getgid?.() ?? 0);
    entry.u32(1).u64(0).u64(7).u64(BigInt.asUintN(64, ns));
    const record = entry.str(name).str(target).finish();
    return new PayloadWriter().u32(record.byteLength).bytes(record).finish();
  }

  test("pipes and sockets are found in the directories that were named, or in all of a tree", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/a/b`, { recursive: true });
    writeFileSync(`${dir}/a/file`, "");
    symlinkSync("a", `${dir}/link`);
    const made = Buffer.concat([node("top"), node("a/pipe"), node("a/b/socket", { type: "s" })]);
    expect(await outcome(guest, ["mknodes", dir, "missing"], made)).toBe(0);
    const names = async (where: string, input?: string): Promise<string[]> =>
      (await entries(await tool(guest, ["nodes", dir, where], input))).map(({ name, type }) => `${name} ${type}`);
    const all = ["a/b/socket socket", "a/pipe fifo", "top fifo"];
    expect((await names("below")).toSorted()).toEqual(all);
    expect(await names("in", ask("a", "link", "nowhere", "a/file", "x".repeat(9000)))).toEqual(["a/pipe fifo"]);
    expect(await names("synced", ask(".", "a/b"))).toEqual(["top fifo", "a/b/socket socket"]);
    const { ctimeNs } = lstatSync(`${dir}/a`, { bigint: true });
    expect(await names("in", `${ctimeNs} a\0`)).toEqual([]);
    expect(await outcome(guest, ["nodes", dir, "in"], "not a time\0")).toBe(errno.EBADMSG);
    expect(await outcome(guest, ["nodes", dir, "in"], "5\0")).toBe(errno.EBADMSG);
    expect(await outcome(guest, ["nodes", dir, "above"])).toBe(errno.EINVAL);
    expect(await outcome(guest, ["nodes", `${dir}/nowhere`, "below"])).toBe(errno.ENOENT);
  });

  test("a tree that is deeper than the longest name is searched down to that depth", async () => {
    await using guest = await NativeGuest.start();
    const half = Array.from({ length: 15 }, () => "d".repeat(250)).join("/");
    // The path is longer than the kernel takes in one piece, so the script enters one directory after the other.
    const make =
      "import os, sys\nfor n in range(3): os.mkfifo('pipe'); os.makedirs(sys.argv[1]); os.chdir(sys.argv[1])";
    const making = guest.spawn(["/usr/bin/python3", "-c", make, half], { cwd: dir });
    guest.stream(making);
    expect((await guest.finish(making)).exit?.exitCode).toBe(0);
    const found = await entries(await tool(guest, ["nodes", dir, "below"]));
    const lengths = found.map(({ name }) => name.length).toSorted((a, b) => a - b);
    expect(lengths).toEqual([4, half.length + 5, 2 * half.length + 6]);
    expect(await outcome(guest, ["remove", `${dir}/${"d".repeat(250)}`, "recursive"])).toBe(0);
  });

  test("nodes are made as described, and the time of their directory does not change", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/d`);
    utimesSync(`${dir}/d`, 1000, 2000);
    const ns = -1_500_000_001n;
    expect(await outcome(guest, ["mknodes", dir, "missing"], node("d/pipe", { mode: 0o4711, ns }))).toBe(0);
    const made = lstatSync(`${dir}/d/pipe`, { bigint: true });
    expect([made.isFIFO(), made.mode & 0o7777n, made.mtimeNs]).toEqual([true, 0o4711n, ns]);
    expect(statSync(`${dir}/d`).mtimeMs).toBe(2_000_000);
    const before = made.ino;
    expect(await outcome(guest, ["mknodes", dir, "missing"], node("d/pipe", { mode: 0o600 }))).toBe(0);
    expect(lstatSync(`${dir}/d/pipe`, { bigint: true }).ino).toBe(before);
    chmodSync(`${dir}/d/pipe`, 0o644);
    expect(await outcome(guest, ["mknodes", dir, "replace"], node("d/pipe", { mode: 0o600 }))).toBe(0);
    const replaced = lstatSync(`${dir}/d/pipe`, { bigint: true });
    expect([replaced.isFIFO(), replaced.mode & 0o7777n, replaced.mtimeNs]).toEqual([true, 0o644n, ns]);
    expect(statSync(`${dir}/d`).mtimeMs).toBe(2_000_000);
  });

  test.for([
    ["a file in its place", "file"],
    ["a link in its place", "link"],
    ["a directory in its place", "d"],
    ["a directory that is not there", "nowhere/pipe"],
    ["a file on the way", "file/pipe"],
    ["a link on the way", "link/pipe"],
    ["a link that leads up on the way", "up/pipe"],
  ] as const)("%s: nothing is made, and nothing changed", async ([, name]) => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/in/d`, { recursive: true });
    writeFileSync(`${dir}/in/file`, "kept");
    symlinkSync("d", `${dir}/in/link`);
    symlinkSync("..", `${dir}/in/up`);
    for (const where of ["missing", "replace"])
      expect(await outcome(guest, ["mknodes", `${dir}/in`, where], node(name))).toBe(0);
    expect(readdirSync(dir)).toEqual(["in"]);
    expect(readdirSync(`${dir}/in`)).toEqual(["d", "file", "link", "up"]);
    expect(readdirSync(`${dir}/in/d`)).toEqual([]);
    expect(readFileSync(`${dir}/in/file`, "utf8")).toBe("kept");
  });

  const whole = node("pipe");
  test.for<[what: string, bytes: Buffer, error: number]>([
    ["a path that leads up", node("../pipe"), errno.EINVAL],
    ["a path that leads up later", node("d/../../pipe"), errno.EINVAL],
    ["an absolute path", node(join(tmpdir(), "pipe")), errno.EINVAL],
    ["the directory itself", node("."), errno.EINVAL],
    ["a path that ends in a slash", node("d/"), errno.EINVAL],
    ["an empty component", node("d//pipe"), errno.EINVAL],
    ["a name that is too long", node("n".repeat(256)), errno.EINVAL],
    ["a path that is too long", node("n/".repeat(4500)), errno.EBADMSG],
    ["no name", node(""), errno.EBADMSG],
    ["a name with NUL", node("a\0b"), errno.EBADMSG],
    ["a file", node("file", { type: "f" }), errno.EBADMSG],
    ["a device", node("device", { type: "c" }), errno.EBADMSG],
    ["a directory", node("directory", { type: "d" }), errno.EBADMSG],
    ["a link", node("link", { type: "l", target: "/etc" }), errno.EBADMSG],
    ["a pipe with a target", node("pipe", { target: "/etc" }), errno.EBADMSG],
    ["a time before all times", node("pipe", { ns: -(2n ** 63n) }), errno.EBADMSG],
    ["a record that is cut off", whole.subarray(0, -1), errno.EBADMSG],
    ["a length that is cut off", whole.subarray(0, 3), errno.EBADMSG],
    ["a length beyond everything", Buffer.alloc(64, 0xff), errno.EBADMSG],
    ["an empty record", Buffer.alloc(4), errno.EBADMSG],
    [
      "bytes after the last field",
      Buffer.concat([Buffer.from([whole.readUInt32LE() + 1, 0, 0, 0]), whole.subarray(4), Buffer.alloc(1)]),
      errno.EBADMSG,
    ],
  ])("%s is refused, and nothing is made of it", async ([, bytes, error]) => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/in/d`, { recursive: true });
    expect(await outcome(guest, ["mknodes", `${dir}/in`, "missing"], bytes)).toBe(error);
    expect(readdirSync(dir)).toEqual(["in"]);
    expect(readdirSync(`${dir}/in`)).toEqual(["d"]);
    expect(readdirSync(`${dir}/in/d`)).toEqual([]);
  });

  test("any bytes are taken or refused, and make nothing elsewhere", async () => {
    await using guest = await NativeGuest.start();
    mkdirSync(`${dir}/in/d`, { recursive: true });
    const good = Buffer.concat([node("d/one"), node("two", { type: "s" }), node("d/three")]);
    for (let round = 0; round < 60; round += 1) {
      const bent = Buffer.from(good);
      for (const byte of randomBytes(1 + (round % 4))) bent[(byte * 7 + round) % bent.byteLength] = byte;
      const code = await outcome(guest, ["mknodes", `${dir}/in`, "missing"], bent);
      expect([0, errno.EBADMSG, errno.EINVAL, errno.EPERM]).toContain(code);
    }
    expect(readdirSync(dir)).toEqual(["in"]);
  });
});
