import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { FilesSource, Sandbox } from "@atoll/engine";
import { TemplateName, type DriverName } from "@atoll/protocol";
import { afterAll, beforeAll, expect, test } from "vitest";
import { forge } from "../../packages/engine/test/guest-native/forge-archive.ts";
import { thorough } from "../../tools/thoroughness.mjs";
import { describeDrivers } from "../support/drivers.ts";
import { openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";
import { makeDataDir } from "../support/test-root.ts";

const deadline = { timeout: 120_000 };
const onGvisor = { ...deadline, tags: "gvisor" };
let host: TestEngine;
let other: TestEngine;
let archives = 0;

beforeAll(async () => {
  [host, other] = await Promise.all([openTestEngine(), openTestEngine()]);
  await mkdir(join(host.dataDir, "saved"));
});

afterAll(async () => {
  await host?.dispose();
  await other?.dispose();
});

/** A script that makes, as root, every kind of file that a snapshot keeps. gVisor cannot set extended attributes. */
const make = (driver: DriverName): string => `
set -e
mkdir kinds && cd kinds
echo text >file && chown 1000:33 file && chmod 4751 file
ln file again
ln -s /nowhere/at/all link && chown -h 7:8 link
mkdir -p deep/er && chmod 1700 deep
printf 'a\\nb' >"$(printf 'deep/name\\nwith\\tall \\303\\244')"
touch -d '2001-02-03 04:05:06.123456789 UTC' file deep
touch -h -d '1999-12-31 23:59:59.5 UTC' link
rm /etc/hosts /usr/bin/yes
rm -r /etc/ld.so.conf.d && mkdir /etc/ld.so.conf.d && echo new >/etc/ld.so.conf.d/only
python3 - ${driver} <<'END'
import os, socket, sys
with open("sparse", "wb") as f:
    f.write(b"begin"); f.seek(64 << 20); f.write(b"end")
os.mkfifo("pipe", 0o640)
socket.socket(socket.AF_UNIX).bind("socket")
if sys.argv[1] == "local":
    os.setxattr("file", "user.note", bytes(range(256)))
    os.setxattr("deep", "user.empty", b"")
END
`;

/** A script that prints everything that can be seen of these files. */
const look = `
cd kinds
find . -printf '%p|%y|%m|%U|%G|%s|%n|%l\\n' | sort
stat -c '%n %y' file deep link
cat file again deep/name*
[ file -ef again ] && echo linked
sha256sum sparse
python3 -c '
import os
for name in ["file", "deep"]: print({key: os.getxattr(name, key).hex() for key in os.listxattr(name)})
print(os.stat("sparse").st_blocks < 1000)'
ls /etc/hosts /usr/bin/yes 2>&1
ls -A /etc/ld.so.conf.d
`;

const asRoot = { user: "root", cwd: "/home/user" };

async function seen(sandbox: Sandbox): Promise<string> {
  return (await runIn(sandbox, look, asRoot)).output;
}

async function save(sandbox: Sandbox): Promise<FilesSource> {
  const archive = join(host.dataDir, "saved", String((archives += 1)));
  const saved = await host.engine.saveFiles(sandbox.id, archive, { signal: AbortSignal.timeout(60_000) });
  return { archive: async () => archive, ...saved };
}

/** Makes an archive with this number of names of a few bytes each. */
async function forgeFiles(like: FilesSource, count: number): Promise<FilesSource> {
  const names = Array.from({ length: count }, (_, n) => String(n)).toSorted();
  const others = Array.from({ length: like.trees - 1 }, () => forge.tree());
  const bytes = forge.archive(forge.tree(...names.map((name) => forge.whiteout(name))), ...others);
  const path = join(host.dataDir, "saved", "forged");
  await writeFile(path, bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  return { ...like, sizeBytes: bytes.byteLength, sha256, archive: async () => path };
}

describeDrivers("files under driver %s", (driver) => {
  test("are the same on another engine, every kind of them", deadline, async () => {
    const sandbox = await host.engine.create({ driver });
    expect((await runIn(sandbox, make(driver), asRoot)).output).toBe("");
    const before = await seen(sandbox);
    const files = await save(sandbox);
    expect(await seen(sandbox)).toBe(before);
    const copy = await other.engine.create({ driver }, { files });
    expect(await seen(copy)).toBe(before);
    expect(before).toContain("./file|f|4751|1000|33|5|2|");
    expect(before).toContain("./pipe|p|640|0|0|");
    expect(before).toContain("./socket|s|755|0|0|");
    await Promise.all([sandbox.kill(), copy.kill()]);
  });

  test("are all of one moment, and the processes that wrote them go on", deadline, async () => {
    const sandbox = await host.engine.create({ driver });
    // The count in the first file equals that in the last, or is one ahead. Files that take a while to copy lie
    // between.
    const script = `
import os
os.mkdir("between")
for n in range(80):
    with open(f"between/{n}", "wb") as f: f.write(os.urandom(1 << 18))
first, last = (os.open(name, os.O_RDWR | os.O_CREAT) for name in ("a-first", "z-last"))
n = 0
while True:
    n += 1
    for fd in (first, last): os.pwrite(fd, b"%020d" % n, 0)
    if n == 1: print("ready", flush=True)
`;
    const writing = await sandbox.spawn({ argv: ["python3", "-c", script], cwd: "/home/user" });
    await writing[Symbol.asyncIterator]().next();
    let before = 0;
    for (let round = 0; round < 2; round += 1) {
      const copy = await other.engine.create({ driver: "local" }, { files: await save(sandbox) });
      const { output } = await runIn(copy, "cat a-first; echo; cat z-last", asRoot);
      const [first = 0, last = 0] = output.split("\n").map(Number);
      expect(first - last).toBeOneOf([0, 1]);
      expect(last).toBeGreaterThan(before);
      before = last;
      await copy.kill();
    }
    await sandbox.kill();
  });
});

test("a snapshot of a sandbox that was paused contains all its layers, whether it runs or not", onGvisor, async () => {
  const sandbox = await host.engine.create({});
  const list = (of: Sandbox) => runIn(of, "find . -type f | sort; cat changed; ls /etc/hosts", asRoot);
  await runIn(sandbox, "mkdir d; echo 1 >d/first; echo 1 >gone; echo 1 >changed; rm /etc/hosts", asRoot);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await runIn(sandbox, "rm gone; echo 2 >changed; echo 2 >d/second", asRoot);
  await host.engine.pause(sandbox.id);
  await host.engine.resume(sandbox.id);
  await runIn(sandbox, "rm -r d; mkdir d; echo 3 >d/third", asRoot);
  const { output } = await list(sandbox);
  expect(output).toContain("./d/third\n2\n");
  const running = await save(sandbox);
  await host.engine.pause(sandbox.id);
  const paused = await save(sandbox);
  expect(sandbox.state).toBe("paused");
  for (const files of [running, paused]) {
    const copy = await other.engine.create({ driver: "local" }, { files });
    expect((await list(copy)).output).toBe(output);
    await copy.kill();
  }
  await host.engine.resume(sandbox.id);
  expect((await list(sandbox)).output).toBe(output);
  await sandbox.kill();
});

test("sandboxes that start with the same files share them, across pause, fork and restart", onGvisor, async () => {
  const dataDir = await makeDataDir();
  let next = await openTestEngine({ dataDir });
  try {
    const builder = await host.engine.create({ driver: "local" });
    await runIn(builder, "mkdir d; echo 1 >d/kept; echo 1 >d/gone; rm /etc/hosts", asRoot);
    const saved = await save(builder);
    await builder.kill();
    let fetched = 0;
    const files = { ...saved, archive: () => ((fetched += 1), saved.archive()) };
    const layers = (): Promise<string[]> => readdir(join(dataDir, "layers"));
    const list = async (of: Sandbox) => (await runIn(of, "find d -type f | sort; ls /etc/hosts 2>&1", asRoot)).output;
    const other = await next.engine.create({ driver: "local" }, { files });
    let one = await next.engine.create({}, { files });
    expect(fetched).toBe(1);
    expect(await layers()).toEqual([`files-${saved.sha256}`]);
    const whole = await list(other);
    expect(whole).toMatch(/^d\/gone\nd\/kept\n/);
    await runIn(one, "rm d/gone; echo 2 >d/more", asRoot);
    const changed = await list(one);
    expect(changed).toBe(whole.replace("gone", "kept").replace("d/kept\nd/kept", "d/kept\nd/more"));

    await next.engine.close();
    next = await openTestEngine({ dataDir });
    one = next.engine.get(one.id);
    expect(await list(one)).toBe(changed);
    await next.engine.pause(one.id);
    await next.engine.resume(one.id);
    const { sandboxes } = await next.engine.fork(one.id);
    expect(await list(one)).toBe(changed);
    for (const fork of sandboxes) expect(await list(fork)).toBe(changed);
    const archive = join(dataDir, "again");
    const again = await next.engine.saveFiles(one.id, archive, { signal: AbortSignal.timeout(60_000) });
    const copy = await next.engine.create({ driver: "local" }, { files: { ...again, archive: async () => archive } });
    expect(await list(copy)).toBe(changed);
    expect(await list(next.engine.get(other.id))).toBe(whole);
    await Promise.all(next.engine.list().map(({ id }) => next.engine.kill(id)));
    expect(await layers()).toEqual([]);
  } finally {
    await next.dispose();
  }
});

test("a file that was deleted from one template leaves no trace in another template", deadline, async () => {
  const root = join(host.dataDir, "root");
  await mkdir(join(root, "dir", "inner"), { recursive: true });
  const pack = (name: string, ...paths: string[]): string => {
    const archive = join(host.dataDir, `${name}.tar`);
    execFileSync("tar", ["-C", root, "-cf", archive, ...paths]);
    return archive;
  };
  const names = ["full", "empty"].map((name) => TemplateName.parse(name));
  const [full = names[0], empty = names[1]] = names;
  if (full === undefined || empty === undefined) throw new Error("The test needs two templates");
  const signal = AbortSignal.timeout(60_000);
  await host.engine.templates.importRootfs(full, { archive: pack("full", "dir") }, { signal });
  await mkdir(join(root, "else"));
  await host.engine.templates.importRootfs(empty, { archive: pack("empty", "else") }, { signal });
  const sandbox = await host.engine.create({ driver: "local", template: full });
  await sandbox.files.remove("/dir/inner", { user: "root", recursive: true });
  await sandbox.files.write("/dir/own", Buffer.from("here"), { user: "root" });
  const files = await save(sandbox);
  expect(files.base).toBe(full);
  const copy = await host.engine.create({ driver: "local", template: empty }, { files });
  expect((await copy.files.list("/dir", { user: "root" })).map(({ name }) => name)).toEqual(["own"]);
  await Promise.all([sandbox.kill(), copy.kill()]);
});

/** This number of files is too large for any disk here. Making them takes longer than all other tests of this file. */
test.for(thorough([], [17_000]))("%i files do not fit on a small disk, and leave nothing", deadline, async (count) => {
  const sandbox = await host.engine.create({ driver: "local" });
  const files = await save(sandbox);
  const before = host.engine.list().length;
  const many = await forgeFiles(files, count);
  const small = { driver: "local", limits: { diskBytes: 2_000_000 } } as const;
  await expect(host.engine.create(small, { files: many })).rejects.toMatchObject({
    code: "limit_reached",
    details: { mostEntries: 16_994 },
  });
  const looked = { ...many, archive: await many.archive() };
  const signal = AbortSignal.timeout(60_000);
  await expect(host.engine.checkFiles(looked, { signal, maxBytes: 2_000_000 })).rejects.toMatchObject({
    code: "limit_reached",
  });
  expect(host.engine.list()).toHaveLength(before);
  expect(await readdir(join(host.dataDir, "sandboxes"))).toHaveLength(before);
  expect(await readdir(join(host.dataDir, "copies"))).toEqual([]);
  await sandbox.kill();
});

test("an archive that is too large for the sandbox's disk, or is no archive, leaves nothing", deadline, async () => {
  const sandbox = await host.engine.create({ driver: "local" });
  await runIn(sandbox, "head -c 3000000 /dev/urandom >large", asRoot);
  const files = await save(sandbox);
  const before = host.engine.list().length;
  const small = { driver: "local", limits: { diskBytes: 2_000_000 } } as const;
  await expect(host.engine.create(small, { files })).rejects.toMatchObject({ code: "limit_reached" });
  const signal = AbortSignal.timeout(60_000);
  const tooLarge = host.engine.saveFiles(sandbox.id, join(host.dataDir, "saved", "large"), {
    signal,
    maxBytes: 1_000_000,
  });
  await expect(tooLarge).rejects.toMatchObject({ code: "limit_reached" });
  const foreign = { ...files, sha256: "0".repeat(64), archive: async () => "/etc/hostname" };
  await expect(host.engine.create({ driver: "local" }, { files: foreign })).rejects.toMatchObject({
    code: "unrestorable",
  });
  const bad = { ...foreign, archive: await foreign.archive() };
  await expect(host.engine.checkFiles(bad, { signal })).rejects.toMatchObject({ code: "unrestorable" });
  await host.engine.checkFiles({ ...files, archive: await files.archive() }, { signal });
  expect(host.engine.list()).toHaveLength(before);
  expect(await readdir(join(host.dataDir, "sandboxes"))).toHaveLength(before);
  expect(await readdir(join(host.dataDir, "saved"))).not.toContain("large");
  expect(await readdir(join(host.dataDir, "copies"))).toEqual([]);
  await sandbox.kill();
});
