import { spawnSync } from "node:child_process";
import { lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TemporaryDirectory } from "../support/temporary-directory.ts";
import { forge } from "./forge-archive.ts";
import { buildTimeoutMs, guestProgram, SanitizerReports } from "./guest-program.ts";

let program: string;
let reports: SanitizerReports;
beforeAll(async () => {
  program = await guestProgram("sanitized");
  reports = new SanitizerReports();
}, buildTimeoutMs);
afterAll(() => reports[Symbol.dispose]());

const { archive, tree, directory, file, chunk, link, whiteout, anotherName, pipe, end } = forge;
const one = (...entries: Buffer[]): Buffer => archive(tree(...entries));
const xattr = (name: string, value: Buffer | string = "", claimed?: number): Buffer =>
  one(file("f", 0, [], { xattrs: [[name, value, claimed]] }));
const block = Buffer.alloc(4096, 1);
const many = <T>(count: number, item: T): T[] => Array.from({ length: count }, () => item);

const hostile: [what: string, bytes: Buffer, because: RegExp][] = [
  ["nothing", Buffer.alloc(0), /it ends too early, before byte 0/],
  ["a beginning only", Buffer.from("atollpk1"), /it ends too early/],
  ["another format", Buffer.alloc(1024, "ustar"), /it is no archive of this kind/],
  ["another version", Buffer.from("atollpk2TZ"), /it is no archive of this kind/],
  ["no tree", archive(), /it has too few trees/],
  ["two trees", archive(tree(), tree()), /it has too many trees/],
  ["something after the end", Buffer.concat([one(), Buffer.from("more")]), /something follows its end/],
  ["another archive after the end", Buffer.concat([one(), one()]), /something follows its end/],
  ["no end", one().subarray(0, -1), /it ends too early/],
  ["a directory without an end", one(directory("d")).subarray(0, -30), /it ends too early/],
  ["a file without its contents", one(file("f", 9, [chunk(0, "four", 9)])), /it ends too early|tag \d+/],
  ["an unknown tag", one(Buffer.from("X\x01a")), /tag 88 is no entry/],
  ["a tree in a tree", one(tree()), /tag 84 is no entry/],
  ["contents without a file", one(chunk(0, "data")), /tag 67 is no entry/],
  ["an end in a tree", one(Buffer.from("Z")), /tag 90 is no entry/],
  ["an entry where a tree should be", archive(file("f")), /tag 70 is no tree/],
  ["an entry after a tree", archive(tree(), file("f")), /tag 70 is no end/],
  ["an empty name", one(file("")), /"" of 0 bytes is no name/],
  ["the name .", one(directory(".")), /"\." of 1 bytes is no name/],
  ["the name ..", one(directory("..", [file("escaped")])), /"\.\." of 2 bytes is no name/],
  ["a path", one(file("d/f")), /"d\/f" of 3 bytes is no name/],
  ["an absolute path", one(file("/tmp/escaped")), /is no name/],
  ["a path that leads up", one(file("../escaped")), /is no name/],
  ["a name with NUL", one(file("a\0b")), /of 3 bytes is no name/],
  ["a name twice", one(file("f"), file("f")), /"f" is out of order/],
  ["names in another order", one(file("b"), file("a")), /"a" is out of order/],
  ["a name before a directory that is over", one(directory("d", [file("z")]), file("c")), /"c" is out of order/],
  ["a directory again", one(directory("d"), directory("d", [file("f")])), /"d" is out of order/],
  [
    "a directory in the place of a link",
    one(link("d", "../outside"), directory("d", [file("escaped")])),
    /out of order/,
  ],
  [
    "a file in the place of a link",
    one(link("f", "../outside/secret"), file("f", 4, [chunk(0, "gone")])),
    /out of order/,
  ],
  ["a whiteout in the place of a file", one(file("f"), whiteout("f")), /"f" is out of order/],
  ["a size that is negative", one(file("f", 1n << 63n)), /no file has 9223372036854775808 bytes/],
  ["a size that no disk has", one(file("f", (1n << 63n) - 1n)), /its size: File too large/],
  ["contents beyond the size", one(file("f", 3, [chunk(0, "four")])), /4 bytes at 0 do not fit into a file of 3/],
  ["contents in an empty file", one(file("f", 0, [chunk(0, "x")])), /do not fit into a file of 0/],
  ["contents that begin within a block", one(file("f", 99, [chunk(1, "x")])), /1 bytes at 1 do not fit/],
  ["contents of no bytes", one(file("f", 99, [chunk(0, "")])), /0 bytes at 0 do not fit/],
  [
    "contents that overlap",
    one(file("f", 9999, [chunk(0, Buffer.alloc(5000, 1)), chunk(4096, "x")])),
    /1 bytes at 4096 do/,
  ],
  ["contents in another order", one(file("f", 9999, [chunk(4096, "x"), chunk(0, block)])), /4096 bytes at 0 do/],
  ["contents twice", one(file("f", 9999, [chunk(0, block), chunk(0, block)])), /4096 bytes at 0 do/],
  [
    "contents that are too long at once",
    one(file("f", 1n << 40n, [chunk(0, "x", (1 << 20) + 1)])),
    /1048577 bytes at 0/,
  ],
  ["contents of four gigabytes", one(file("f", 1n << 40n, [chunk(0, "x", 0xffff_ffff)])), /4294967295 bytes at 0/],
  [
    "contents at the end of all numbers",
    one(file("f", 9, [chunk((1n << 64n) - 4096n, "x")])),
    /do not fit into a file of 9/,
  ],
  ["an entry within contents", one(Buffer.from("F\x01f\x01\0\0\0\0\0\0\0F")), /tag 70 is not for contents/],
  ["a mode that is a kind of file", one(file("f", 0, [], { mode: 0o10_644 })), /10644 is no mode/],
  [
    "more nanoseconds than there are",
    one(file("f", 0, [], { nanoseconds: 1_000_000_000 })),
    /no 1000000000 nanoseconds/,
  ],
  ["an owner that is none", one(file("f", 0, [], { uid: 0xffff_ffff })), /4294967295 is no owner/],
  ["a group that is none", one(pipe("p", { gid: 0xffff_ffff })), /4294967295 is no owner/],
  ["a link to nothing", one(link("l", "")), /the target of a link has 0 bytes/],
  ["a link that is too long", one(link("l", "x".repeat(4096))), /the target of a link has 4096 bytes/],
  ["a link with NUL", one(link("l", "a\0b")), /the target of a link holds a NUL/],
  ["another name of nothing", one(anotherName("f", "nowhere")), /the first name of a file: No such file/],
  ["another name of itself", one(anotherName("f", "f")), /the first name of a file: No such file/],
  ["another name of no name", one(anotherName("f", "")), /the first name of a file has 0 bytes/],
  ["another name of a directory", one(directory("a"), anotherName("b", "a")), /a cannot have another name/],
  ["another name of a whiteout", one(whiteout("a"), anotherName("b", "a")), /a cannot have another name/],
  ["another name of what lies above", one(anotherName("f", "../outside/secret")), /leads nowhere/],
  ["another name of an absolute path", one(anotherName("f", "/etc/passwd")), /leads nowhere/],
  ["another name of what lies in itself", one(file("a"), anotherName("f", "a/")), /Not a directory/],
  ["another name through a link", one(link("a", "../outside"), anotherName("b", "a/secret")), /Not a directory/],
  ["another name that is too long", one(anotherName("f", Buffer.alloc((1 << 20) + 300, "a"))), /has 1048876 bytes/],
  ["another name, twice", one(file("a"), anotherName("b", "a"), anotherName("b", "a")), /"b" is out of order/],
  [
    "an attribute that redirects",
    xattr("trusted.overlay.redirect", "/"),
    /trusted\.overlay\.redirect is not for archives/,
  ],
  [
    "an attribute of another machine",
    xattr("trusted.overlay.origin", "x"),
    /trusted\.overlay\.origin is not for archives/,
  ],
  ["an attribute of the host's security", xattr("security.selinux", "x"), /security\.selinux is not for archives/],
  ["an attribute without a name", xattr("user."), /user\. is not for archives/],
  ["an attribute that is a path", xattr("user/x"), /is no name/],
  ["an attribute that is too long", xattr("user.x", "x", 65_537), /user\.x has 65537 bytes/],
  ["an attribute that is cut off", xattr("user.x", "x", 60_000), /it ends too early/],
  [
    "an attribute twice",
    one(
      file("f", 0, [], {
        xattrs: [
          ["user.x", "1"],
          ["user.x", "2"],
        ],
      }),
    ),
    /user\.x is out of order/,
  ],
  ["capabilities that are none", xattr("security.capability", "x"), /security\.capability: Invalid argument/],
  [
    "directories without end",
    Buffer.concat([Buffer.from("atollpk1T"), ...many(4100, Buffer.from(`D\xff${"d".repeat(255)}`, "latin1"))]),
    /File name too long/,
  ],
  ["ends without end", archive(tree(), ...many(9, end())), /tag 69 is no end/],
];

function makePlace(place: TemporaryDirectory): string {
  mkdirSync(place.join("outside"));
  writeFileSync(place.join("outside", "secret"), "untouched");
  mkdirSync(place.join("into"));
  return place.join("into");
}

function unpack(input: Buffer, ...into: string[]): { exitCode: number | null; said: string } {
  const { status, stderr } = spawnSync(program, ["unpack", ...into], { input, env: reports.environment });
  expect(reports.read()).toBe("");
  return { exitCode: status, said: stderr.toString() };
}

function expectUntouched(place: TemporaryDirectory): void {
  expect(readdirSync(place.path).toSorted()).toEqual(["into", "outside"]);
  expect(readdirSync(place.join("outside"))).toEqual(["secret"]);
  expect(readFileSync(place.join("outside", "secret"), "utf8")).toBe("untouched");
  expect(lstatSync(place.join("outside", "secret")).nlink).toBe(1);
}

test.for(hostile)("%s is refused by name", ([, bytes, because]) => {
  const place = new TemporaryDirectory();
  try {
    const { exitCode, said } = unpack(bytes, makePlace(place));
    expect(said).toMatch(because);
    expect(said).toMatch(/^Cannot unpack: [^\n]*\n$/);
    expect(exitCode).toBe(1);
    expectUntouched(place);
  } finally {
    // Node cannot remove a tree this deep.
    spawnSync("rm", ["-rf", place.path]);
  }
});

test("a directory that is not empty is not filled", () => {
  using place = new TemporaryDirectory();
  const into = makePlace(place);
  symlinkSync("../outside", `${into}/d`);
  expect(unpack(one(directory("d", [file("f")])), into)).toMatchObject({
    exitCode: 1,
    said: expect.stringContaining("is not empty"),
  });
  expectUntouched(place);
});

test("an archive of more entries than it may have is refused as such, and other names of a file do not count", () => {
  using place = new TemporaryDirectory();
  const into = makePlace(place);
  const few = one(directory("a", [file("b"), anotherName("c", "a/b")]), whiteout("d"));
  expect(unpack(few, "--most-entries", "2", into)).toEqual({
    exitCode: 5,
    said: expect.stringMatching(/^Cannot unpack: it has too many entries, before byte \d+\n$/),
  });
  expect(readdirSync(into)).toEqual(["a"]);
  mkdirSync(place.join("again"));
  expect(unpack(few, "--most-entries", "3", place.join("again"))).toEqual({ exitCode: 0, said: "" });
  expect(unpack(few, "--most-entries", "x", place.join("again")).exitCode).toBe(2);
});
