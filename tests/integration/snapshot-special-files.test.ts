// @module-tag gvisor
import { mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import type { FilesSource, Sandbox } from "@atoll/engine";
import { TemplateName, type DriverName } from "@atoll/protocol";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Conversation, openTestEngine, runIn, type TestEngine } from "../support/test-engine.ts";

const deadline = { timeout: 120_000 };
const drivers: DriverName[] = ["gvisor", "local"];
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

const asRoot = { user: "root", cwd: "/home/user" };
const asUser = { user: "user", cwd: "/home/user" };

async function save(sandbox: Sandbox, from: TestEngine = host): Promise<FilesSource> {
  const archive = join(host.dataDir, "saved", String((archives += 1)));
  const saved = await from.engine.saveFiles(sandbox.id, archive, { signal: AbortSignal.timeout(60_000) });
  return { archive: async () => archive, ...saved };
}

/**
 * A script that makes special files in both trees of the template: in directories with and without other changes, and
 * in place of existing files.
 */
const makeAsRoot = `
set -e
mkfifo /at-the-root /usr/at-the-root /usr/lib/in-the-template
mkfifo /etc/pipe && chown 7:8 /etc/pipe && chmod 4751 /etc/pipe
touch -d '2001-02-03 04:05:06.123456789 UTC' /etc/pipe
mkfifo -m 600 /root/private /root/left && mv /root/left /root/moved
rm /etc/hosts && mkfifo /etc/hosts
mkfifo "$(printf '/var/name\\nwith\\tall \\303\\244 \\377')"
mkfifo gone && rm gone
touch -d '1999-12-31 23:59:59.5 UTC' /usr/lib
`;
const makeAsUser = `
set -e
mkdir -p deep/er && mkfifo -m 622 deep/er/pipe && echo file >deep/er/file
mkfifo -m 640 pipe
python3 -c '
import os, socket
socket.socket(socket.AF_UNIX).bind("socket"); os.chmod("socket", 0o711)
os.chdir("deep"); socket.socket(socket.AF_UNIX).bind("relative")
os.mkdir("."+"x"*100); os.mkfifo("."+"x"*100+"/"+"y"*255)'
`;

/**
 * A script that prints everything that can be seen of these files and their directories, except for the roots of trees,
 * whose times are those of the start. It skips most of \`/usr\`, which would take too long.
 */
const look = `
show='|%y|%m|%U|%G|%T+\\n'
(find / -xdev -path /usr -prune -o \\( -type p -o -type s \\) -printf "%p$show%h\\n"
find /usr /usr/lib -maxdepth 1 -type p -printf "%p$show%h\\n") | sort -u >/tmp/found
cat /tmp/found
grep '^/[^|]*$' /tmp/found | grep -v '^/usr$' | xargs -d '\\n' stat -c '%n|%a|%u|%g|%y'
ls -A /home/user
`;

async function seen(sandbox: Sandbox): Promise<string> {
  return (await runIn(sandbox, look, { user: "root", cwd: "/" })).stdout.toString("latin1");
}

/** A script in which two processes talk through a pipe, and a server takes over a socket file that has no server. */
const use = `
(echo through >$1 & cat $1)
python3 - $2 <<'END'
import os, socket, sys
path = sys.argv[1]
try: socket.socket(socket.AF_UNIX).connect(path)
except OSError as error: print(error.errno)
os.unlink(path)
server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect(path); client.sendall(b"heard")
print(server.accept()[0].recv(9).decode())
END
rm $1 && [ ! -e $1 ] && mkfifo $1 && (echo again >$1 & cat $1)
`;
const used = "through\n111\nheard\nagain\n";

async function useIn(sandbox: Sandbox, pipe = "pipe"): Promise<string> {
  return (await runIn(sandbox, ["bash", "-c", use, "bash", pipe, "socket"], asUser)).output;
}

describe("pipes and sockets that were made under gVisor", () => {
  test("are in a snapshot, and can be used under both drivers", deadline, async () => {
    const sandbox = await host.engine.create({});
    expect((await runIn(sandbox, makeAsRoot, asRoot)).output).toBe("");
    expect((await runIn(sandbox, makeAsUser, asUser)).output).toBe("");
    const before = await seen(sandbox);
    expect(before).toContain("/etc/pipe|p|4751|7|8|2001-02-03+04:05:06.1234567890\n");
    expect(before).toContain("/home/user/socket|s|711|1000|1000|");
    expect(before).toContain("/usr/lib|755|0|0|1999-12-31 23:59:59.5");
    expect(before.match(/\|[ps]\|/g)).toHaveLength(13);
    const files = await save(sandbox);
    expect(await seen(sandbox)).toBe(before);
    expect((await save(sandbox)).sha256).toBe(files.sha256);
    for (const driver of drivers) {
      for (const base of [files.base, TemplateName.parse("another-machines")]) {
        const copy = await other.engine.create({ driver }, { files: { ...files, base } });
        expect(await seen(copy)).toBe(before);
        expect(await useIn(copy)).toBe(used);
        expect(await useIn(copy, "deep/er/pipe")).toBe(used);
        await copy.kill();
      }
    }
    expect(await useIn(sandbox)).toBe(used);
    await sandbox.kill();
  });

  test.for(drivers)(
    "that came with a snapshot of driver %s are in the next one with their changes",
    deadline,
    async (driver) => {
      const first = await host.engine.create({ driver });
      await runIn(first, "mkfifo kept gone changed; mkdir d; mkfifo d/in; ln kept again", asUser);
      await runIn(first, "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'", asUser);
      const second = await host.engine.create({}, { files: await save(first) });
      await runIn(second, "rm gone; chmod 600 changed; mv d moved; rm socket; mkdir socket; mkfifo new", asUser);
      const before = await seen(second);
      expect(before.match(/[a-z/]+(?=\|p\|)/g)).toEqual(
        ["changed", ...(driver === "local" ? ["again"] : []), "kept", "moved/in", "new"]
          .map((name) => `/home/user/${name}`)
          .toSorted(),
      );
      const files = await save(second);
      for (const next of drivers) {
        const third = await other.engine.create({ driver: next }, { files });
        expect(await seen(third)).toBe(before);
        await third.kill();
      }
      await Promise.all([first.kill(), second.kill()]);
    },
  );

  test("survive a pause and a fork, and are in snapshots from then on", deadline, async () => {
    const sandbox = await host.engine.create({});
    await runIn(sandbox, makeAsRoot, asRoot);
    await runIn(sandbox, makeAsUser, asUser);
    const before = await seen(sandbox);
    const files = await save(sandbox);
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id);
    expect(await seen(sandbox)).toBe(before);
    expect((await save(sandbox)).sha256).toBe(files.sha256);
    const { sandboxes } = await host.engine.fork(sandbox.id);
    for (const fork of sandboxes) expect((await save(fork)).sha256).toBe(files.sha256);
    expect(await useIn(sandbox)).toBe(used);
    await Promise.all([sandbox, ...sandboxes].map((one) => one.kill()));
  });

  test("are kept by a resume that uses only the files of a pause", deadline, async () => {
    const sandbox = await host.engine.create({});
    await runIn(sandbox, makeAsRoot, asRoot);
    await runIn(sandbox, makeAsUser, asUser);
    const before = await seen(sandbox);
    const files = await save(sandbox);
    await host.engine.pause(sandbox.id);
    expect((await save(sandbox)).sha256).toBe(files.sha256);
    await host.engine.resume(sandbox.id, { memory: false });
    expect(await seen(sandbox)).toBe(before);
    expect(await useIn(sandbox)).toBe(used);
    await runIn(sandbox, "rm deep/er/pipe", asUser);
    await host.engine.pause(sandbox.id);
    await host.engine.resume(sandbox.id, { memory: false });
    expect(await useIn(sandbox)).toBe(used);
    expect((await runIn(sandbox, "[ -e deep/er/pipe ] || echo gone", asUser)).output).toBe("gone\n");
    await sandbox.kill();
  });

  test("that came with a snapshot are, with their changes, in a snapshot of the next pause", deadline, async () => {
    const first = await host.engine.create({});
    await runIn(first, "mkfifo kept gone; chmod 611 kept", asUser);
    const second = await host.engine.create({}, { files: await save(first) });
    await runIn(second, "rm gone; mkfifo new", asUser);
    const before = await seen(second);
    await host.engine.pause(second.id);
    for (const driver of drivers) {
      const third = await other.engine.create({ driver }, { files: await save(second) });
      expect(await seen(third)).toBe(before);
      await third.kill();
    }
    await Promise.all([first.kill(), second.kill()]);
  });

  test("that come and go during a snapshot do not affect the others", deadline, async () => {
    const sandbox = await host.engine.create({});
    const script = `
import os, itertools
os.mkfifo("stays"); os.mkdir("d")
for n in itertools.count():
    os.mkfifo("d/pipe"); os.rename("d/pipe", "d/moved"); os.unlink("d/moved")
    open("d/pipe", "w").close(); os.unlink("d/pipe")
    os.mkdir("d/moved"); os.mkfifo("d/moved/in"); os.unlink("d/moved/in"); os.rmdir("d/moved")
    if n == 0: print("ready", flush=True)
`;
    const changing = await sandbox.spawn({ argv: ["python3", "-c", script], ...asUser });
    await new Conversation(changing).until(/ready/);
    for (let round = 0; round < 5; round += 1) {
      const copy = await other.engine.create({ driver: "local" }, { files: await save(sandbox) });
      expect((await runIn(copy, "[ -p stays ] && [ -d d ] && echo whole", asUser)).output).toBe("whole\n");
      await copy.kill();
    }
    expect(changing.pid).toBeGreaterThan(0);
    await sandbox.kill();
  });
});

test("too many pipes are refused under gVisor, and nothing is left", deadline, async () => {
  const sandbox = await host.engine.create({ driver: "local" });
  // The list of pipes is limited in bytes, so long paths reach the limit with few files.
  const script = `
import os
for level in range(8): os.mkdir("d" * 240); os.chdir("d" * 240)
for n in range(500): os.mkfifo(str(n) + "x" * 250)`;
  await runIn(sandbox, ["python3", "-c", script], asUser);
  const files = await save(sandbox);
  const before = host.engine.list().length;
  await expect(host.engine.create({}, { files })).rejects.toMatchObject({ code: "limit_reached" });
  expect(host.engine.list()).toHaveLength(before);
  expect(await readdir(join(host.dataDir, "sandboxes"))).toHaveLength(before);
  const copy = await host.engine.create({ driver: "local" }, { files });
  expect((await runIn(copy, "find . -type p | wc -l", asUser)).output).toBe("500\n");
  await Promise.all([sandbox.kill(), copy.kill()]);
});

describe("extended attributes under gVisor", () => {
  const name = "user.note";
  const value = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)).toString("hex");

  test("cannot be set on files that a snapshot would save, so none can be lost", deadline, async () => {
    const sandbox = await host.engine.create({});
    const script = `
import os
os.mkdir("d"); open("f", "w").close(); os.symlink("f", "l"); os.mkfifo("p")
for path in ["f", "d", ".profile", "/etc/passwd", "/usr/bin/env", "/", "l", "p"]:
    for name in ["user.note", "security.capability", "trusted.note", "system.posix_acl_access"]:
        try: os.setxattr(path, name, b"x", follow_symlinks=path != "l")
        except OSError: continue
        print(path, name)
try: os.setxattr("f", "user.note", b"x")
except OSError as error: print(error.errno)
`;
    expect((await runIn(sandbox, ["python3", "-c", script], asRoot)).output).toBe("95\n");
    await sandbox.kill();
  });

  test("that came with a snapshot are in the next one, also those of changed files", deadline, async () => {
    const first = await host.engine.create({ driver: "local" });
    const set = `
import os
os.makedirs("d/e")
for path in ["same", "written", "mode", "moved", "linked", "d/f"]: open(path, "w").close()
for path in ["same", "written", "mode", "moved", "linked", "d", "d/e", "d/f"]:
  os.setxattr(path, "${name}", bytes(range(256)))
`;
    expect((await runIn(first, ["python3", "-c", set], asUser)).output).toBe("");
    const second = await host.engine.create({}, { files: await save(first) });
    const change = "echo more >>written; chmod 600 mode; mv moved to; ln linked again; touch d/e/new; mkfifo d/pipe";
    expect((await runIn(second, change, asUser)).output).toBe("");
    const third = await other.engine.create({ driver: "local" }, { files: await save(second) });
    const read = `
import os
for path in ["same", "written", "mode", "to", "linked", "again", "d", "d/e", "d/f"]:
  print(path, os.getxattr(path, "${name}").hex())
print(os.listxattr("d/e/new"))
`;
    const paths = ["same", "written", "mode", "to", "linked", "again", "d", "d/e", "d/f"];
    expect((await runIn(third, ["python3", "-c", read], asUser)).output).toBe(
      `${paths.map((path) => `${path} ${value}\n`).join("")}[]\n`,
    );
    await Promise.all([first, second, third].map((sandbox) => sandbox.kill()));
  });
});
