import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { buildTimeoutMs, guestProgram, SanitizerReports } from "./guest-program.ts";

let program: string;
let reports: SanitizerReports;
let dir: string;
beforeAll(async () => {
  program = await guestProgram("sanitized");
  reports = new SanitizerReports();
}, buildTimeoutMs);
afterAll(() => reports[Symbol.dispose]());
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "atoll-archive-"));
});
afterEach(() => {
  // Node cannot remove a tree this deep.
  execFileSync("rm", ["-rf", dir]);
});

/** This script makes everything that the trees of sandboxes may have. */
const everything = `
import os, socket
def write(path, data):
    with open(path, "wb") as file: file.write(data)
os.makedirs("d1/d2"); write("plain", b"hello"); os.link("plain", "d1/d2/again"); os.link("plain", "zz")
socket.socket(socket.AF_UNIX).bind("socket"); os.mkfifo("pipe", 0o600); os.link("pipe", "d1/pipe")
os.link("socket", "d1/socket")
os.symlink("x" * 4000, "long"); os.symlink("new\\nline", "odd"); os.symlink("../../../etc/passwd", "out")
os.symlink(b"\\xff\\xfe", b"bytes")
os.link("odd", "d1/odd", follow_symlinks=False); os.lchown("odd", 7, 8)
with open("sparse", "wb") as file: file.seek(9 << 30); file.write(b"middle"); file.truncate(10 << 30)
write(b"na\\nme\\xff", b"x"); write("n" * 255, b"long name"); os.mkdir("empty"); write("empty.file", b"")
os.mkdir("closed"); write("closed/in", b"1"); os.chmod("closed", 0); write("closed.file", b"2")
os.chmod("closed.file", 0)
write("suid", b"#!"); os.chown("suid", 12345, 54321); os.chmod("suid", 0o6755); os.mkdir("sticky")
os.chmod("sticky", 0o1777)
os.mknod("gone", 0o020000, os.makedev(0, 0)); os.mkdir("opaque"); os.setxattr("opaque", "trusted.overlay.opaque", b"y")
os.setxattr("plain", "user.bytes", b"\\0\\xff" * 100); os.setxattr("plain", "user.a", b"")
os.setxattr("d1", "user.note", b"dir")
write("capable", b"#!")
os.setxattr("capable", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
write("large", os.urandom(3 << 20) + bytes(5 << 20) + os.urandom(12345)); write("zeros", bytes(2 << 20))
write("block", bytes(4096) + b"x")
os.utime("plain", ns=(1, 1234567890123456789)); os.utime("odd", ns=(1, -5), follow_symlinks=False)
os.utime("empty", ns=(5, 999999999))
top = os.open(".", 0); os.mkdir("deep"); os.chdir("deep")
for _ in range(1500): os.mkdir("down"); os.chdir("down")
write("bottom", b"reached"); os.fchdir(top)
`;

/** This script prints everything that is visible of a tree, except what is too deep. */
const show = String.raw`
import hashlib, os, stat
for top, names, files in os.walk(b"."):
    if top.count(b"/") > 20: continue
    for name in sorted(names + files) + [b"."]:
        path = os.path.join(top, name); info = os.lstat(path); kind = stat.S_IFMT(info.st_mode)
        seen = [path, oct(info.st_mode), info.st_uid, info.st_gid]
        if kind != stat.S_IFCHR: seen += [info.st_mtime_ns]
        if kind != stat.S_IFDIR: seen += [info.st_nlink, info.st_size]
        if kind == stat.S_IFLNK: seen += [os.readlink(path)]
        if kind == stat.S_IFREG and info.st_size < 1 << 30:
            seen += [hashlib.sha256(open(path, "rb").read()).hexdigest()]
        for key in sorted(os.listxattr(path, follow_symlinks=False)):
            seen += [key, os.getxattr(path, key, follow_symlinks=False)]
        print(seen)
`;

function python(script: string, cwd: string): string {
  return execFileSync("python3", ["-c", script], { cwd, encoding: "utf8", maxBuffer: 64 << 20 });
}

function make(name: string, script: string): string {
  const path = join(dir, name);
  mkdirSync(path);
  python(script, path);
  return path;
}

interface Ran {
  exitCode: number | null;
  stdout: Buffer;
  stderr: string;
  /** The output of descriptor 3. */
  stamp: Buffer;
}

function tool(words: string[], input?: Buffer): Ran {
  const stampFile = join(dir, "stamp");
  const { status, stdout, stderr } = spawnSync(program, words, {
    env: reports.environment,
    stdio: ["pipe", "pipe", "pipe", openSync(stampFile, "w")],
    maxBuffer: 64 << 20,
    ...(input === undefined ? {} : { input }),
  });
  expect(reports.read()).toBe("");
  return { exitCode: status, stdout, stderr: stderr.toString(), stamp: readFileSync(stampFile) };
}

function pack(...trees: string[]): Buffer {
  const { exitCode, stdout, stderr } = tool(["pack", ...trees]);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  return stdout;
}

test("what is unpacked is what was packed, in every detail", () => {
  const from = make("from", everything);
  const archive = pack(from);
  const into = make("into", "");
  expect(tool(["unpack", into], archive)).toMatchObject({ exitCode: 0, stderr: "" });
  const seen = python(show, into);
  expect(seen).toBe(python(show, from));
  expect(seen).toContain("security.capability");
  // Other names of a file are names of the same file, and holes are holes.
  expect(statSync(join(into, "zz")).ino).toBe(statSync(join(into, "d1/d2/again")).ino);
  expect(statSync(join(into, "sparse"))).toMatchObject({ size: 10 * 2 ** 30 });
  expect(statSync(join(into, "sparse")).blocks).toBeLessThan(100);
  expect(statSync(join(into, "zeros")).blocks).toBeLessThan(100);
  expect(archive.byteLength).toBeLessThan(4 << 20);
  expect(pack(into).equals(archive)).toBe(true);
});

test("the same files give the same bytes, however they came to be", () => {
  const same = (lines: string[]): string =>
    [
      "import os",
      ...lines,
      "for name in ['', 'a', 'b', 'd', 'd/e', 'f', 'f/g']:",
      "    os.utime('./' + name, ns=(0, 5))",
    ].join("\n");
  const one = make(
    "one",
    same([
      "os.makedirs('d/e'); open('a', 'wb').write(bytes(9000) + b'x'); os.link('a', 'b'); " +
        "os.mkdir('f'); open('f/g', 'w').write('g')",
      "os.mknod('w1', 0o020000, 0); os.mknod('w2', 0o020000, 0)",
    ]),
  );
  const two = make(
    "two",
    same([
      "os.mknod('w2', 0o020000, 0); os.link('w2', 'w1', follow_symlinks=False); " +
        "os.mkdir('f'); open('f/g', 'w').write('g')",
      "file = open('b', 'wb'); file.seek(9000); file.write(b'x'); file.close(); os.link('b', 'a'); os.makedirs('d/e')",
      "os.setxattr('d', 'trusted.overlay.origin', b'here'); os.setxattr('d', 'trusted.overlay.impure', b'y'); " +
        "os.mkdir('later'); os.rmdir('later')",
    ]),
  );
  expect(pack(two).equals(pack(one))).toBe(true);
  utimesSync(join(two, "f/g"), 0, 6);
  expect(pack(two).equals(pack(one))).toBe(false);
});

test("several trees go into as many directories", () => {
  const trees = ["a", "b"].map((name) => make(name, `open(${JSON.stringify(name)}, "w").write("of the tree")`));
  const into = ["c", "d"].map((name) => make(name, ""));
  expect(tool(["unpack", ...into], pack(...trees))).toMatchObject({ exitCode: 0 });
  expect(into.map((path) => python(show, path))).toEqual(trees.map((path) => python(show, path)));
});

test("a stamp shows whether any file was changed", () => {
  const tree = make("tree", "open('file', 'w').write('x'); import os; os.mkdir('d'); os.symlink('file', 'd/link')");
  const stamp = (): string => tool(["stamp", tree]).stdout.toString("hex");
  const first = stamp();
  expect(tool(["pack", "--stamp", tree]).stamp.toString("hex")).toBe(first);
  const durable = tool(["pack", "--durable-stamp", tree]);
  expect(durable.stamp.toString("hex")).toBe(first);
  expect(durable.stdout.equals(pack(tree))).toBe(true);
  expect(stamp()).toBe(first);
  const { atime, mtime } = statSync(join(tree, "file"));
  writeFileSync(join(tree, "file"), "y");
  utimesSync(join(tree, "file"), atime, mtime);
  const second = stamp();
  expect(second).not.toBe(first);
  unlinkSync(join(tree, "d/link"));
  expect(stamp()).not.toBe(second);
});

test("a file that cannot be packed is named", () => {
  const tree = make("tree", "import os; os.mkdir('d'); os.mknod('d/device', 0o020600, os.makedev(1, 3))");
  expect(tool(["pack", tree])).toMatchObject({
    exitCode: 1,
    stderr: `Cannot pack ${tree}: d/device: Operation not supported\n`,
  });
});

test("a directory that cannot be made durable is named", () => {
  expect(tool(["pack", "--durable-stamp", "/nowhere"])).toMatchObject({
    exitCode: 3,
    stderr: expect.stringMatching(/^Cannot make durable \/nowhere: .*No such file or directory\n$/) as string,
  });
});

/** Packs a tree of which one file is removed while another one is read. */
async function packWhileGoing(...words: string[]): Promise<{ exitCode: unknown; archive: Buffer }> {
  const tree = make("tree", "open('a', 'wb').write(b'x' * (8 << 20)); open('b', 'w').write('b')");
  const child = spawn(program, ["pack", ...words, tree], {
    env: reports.environment,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exit = once(child, "exit");
  // The tool waits for its reader, in the middle of the first file.
  await once(child.stdout, "readable");
  unlinkSync(join(tree, "b"));
  const archive = Buffer.concat(await child.stdout.toArray());
  const [exitCode] = (await exit) as unknown[];
  return { exitCode, archive };
}

test("a file that is removed during packing has an exit code of its own", async () => {
  expect(await packWhileGoing()).toMatchObject({ exitCode: 3 });
});

test("files that are removed from a directory in use are left out", async () => {
  const { exitCode, archive } = await packWhileGoing("--living");
  expect(exitCode).toBe(0);
  const into = make("into", "");
  expect(tool(["unpack", into], archive)).toMatchObject({ exitCode: 0, stderr: "" });
  expect(readdirSync(into)).toEqual(["a"]);
  expect(statSync(join(into, "a")).size).toBe(8 << 20);
});

test("a full disk and a bad archive have different exit codes", () => {
  const tree = make("tree", "import os; open('a', 'wb').write(os.urandom(2 << 20))");
  writeFileSync(join(dir, "archive"), pack(tree));
  mkdirSync(join(dir, "small"));
  const script = [
    `mount -t tmpfs -o size=1m tmpfs ${dir}/small`,
    `mkdir ${dir}/small/into`,
    `"$0" unpack ${dir}/small/into <${dir}/archive`,
  ].join("; ");
  const { status, stderr } = spawnSync("unshare", ["--mount", "bash", "-c", script, program], {
    env: { ...process.env, ...reports.environment },
  });
  expect(stderr.toString()).toContain("its contents: No space left on device");
  expect(status).toBe(4);
});

test("memory is bounded, whatever the size of a file", async () => {
  const release = await guestProgram("release");
  const tree = make(
    "tree",
    "import os; file = open('f', 'wb'); [(file.seek(i << 33), file.write(os.urandom(1 << 20))) for i in range(24)]",
  );
  mkdirSync(join(dir, "into"));
  const script = `set -o pipefail; ulimit -v 16384; "$0" pack ${tree} | "$0" unpack ${dir}/into`;
  const { status, stderr } = spawnSync("bash", ["-c", script, release]);
  expect({ status, stderr: stderr.toString() }).toEqual({ status: 0, stderr: "" });
  expect(statSync(join(dir, "into/f")).size).toBe(statSync(join(tree, "f")).size);
  rmSync(tree, { recursive: true });
});
