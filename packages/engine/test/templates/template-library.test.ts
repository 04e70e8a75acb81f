import { spawnSync } from "node:child_process";
import { chmod, lstat, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { isSandboxError, TemplateName } from "@atoll/protocol";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { TemplateLibrary } from "../../src/templates/template-library.ts";
import type { Template } from "../../src/templates/template.ts";
import { forgeTar } from "./archive/forge-tar.ts";

let base: string;
let hostRoot: string;
let dataDir: string;
let library: TemplateLibrary;
const signal = new AbortController().signal;
const host = TemplateName.parse("host");
const named = (name: string): TemplateName => TemplateName.parse(name);

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "atoll-templates-"));
  hostRoot = join(base, "host");
  dataDir = join(base, "data");
  await putAll(hostRoot, {
    "usr/bin/true": "#!",
    "usr/local/etc/npmrc": "secret-of-this-host",
    "usr/share/doc/readme": "public",
    "etc/os-release": "ID=test",
    "etc/ssl/certs/ca.pem": "certificate",
    "etc/ssl/private/key.pem": "secret-of-this-host",
    "etc/shadow": "secret-of-this-host",
    "etc/npmrc": "secret-of-this-host",
    "etc/services": "http 80/tcp",
    "root/.ssh/id": "secret-of-this-host",
    "home/me/notes": "secret-of-this-host",
    "var/lib/secret": "secret-of-this-host",
  });
  for (const name of ["bin", "lib"]) await symlink(`usr/${name}`, join(hostRoot, name));
  library = new TemplateLibrary(dataDir, { hostRoot });
});
afterEach(() => rm(base, { recursive: true, force: true }));

async function put(path: string, content: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}

async function putAll(root: string, files: Record<string, string>): Promise<void> {
  for (const [path, content] of Object.entries(files)) await put(join(root, path), content);
}

const layer = (template: Template, at: string, index: number): string =>
  template.trees.find((tree) => tree.at === at)?.lower[index] ?? "";

const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "resolved",
    (error: unknown) => (isSandboxError(error) ? error.code : error),
  );

const isAbsent = (path: string): Promise<boolean> =>
  lstat(path).then(
    () => false,
    () => true,
  );

describe("the template of the host", () => {
  test("is a root of our own with the host's /usr in it", async () => {
    const { name, trees } = await library.get(host);
    expect(name).toMatch(/^host-[0-9a-f]{16}$/);
    expect(trees.map(({ at }) => at)).toEqual(["/", "/usr"]);
    expect(trees[0]?.lower).toEqual([join(dataDir, "templates", name, "root")]);
    expect(trees[1]?.lower.at(-1)).toBe(join(hostRoot, "usr"));
  });

  test("has the users, their homes and the links that the host has", async () => {
    const root = layer(await library.get(host), "/", 0);
    expect(await readFile(join(root, "etc/passwd"), "utf8")).toContain("user:x:1000:1000::/home/user:/bin/bash\n");
    expect(await readlink(join(root, "bin"))).toBe("usr/bin");
    const modes = await Promise.all(
      ["home/user", "root", "tmp", "etc/shadow"].map(async (path) => {
        const { mode, uid, gid } = await lstat(join(root, path));
        return [mode & 0o7777, uid, gid];
      }),
    );
    expect(modes).toEqual([
      [0o755, 1000, 1000],
      [0o700, 0, 0],
      [0o1777, 0, 0],
      [0o640, 0, 42],
    ]);
  });

  test("shows what is on the list and nothing else", async () => {
    const root = layer(await library.get(host), "/", 0);
    expect(await readFile(join(root, "etc/services"), "utf8")).toBe("http 80/tcp");
    expect(await readFile(join(root, "etc/ssl/certs/ca.pem"), "utf8")).toBe("certificate");
    const found = spawnSync("grep", ["-rl", "of-this-host", root]).stdout.toString();
    expect(found).toBe("");
  });

  test("leaves out files that not every user may read, even if they are on the list", async () => {
    await chmod(join(hostRoot, "etc/services"), 0o640);
    const root = layer(await library.get(host), "/", 0);
    expect(await isAbsent(join(root, "etc/services"))).toBe(true);
  });

  test("hides the private files of /usr and the settings of the host's programs", async () => {
    await put(join(hostRoot, "usr/lib/app/secret.key"), "k");
    await chmod(join(hostRoot, "usr/lib/app/secret.key"), 0o600);
    await put(join(hostRoot, "usr/share/closed/inside"), "k");
    await chmod(join(hostRoot, "usr/share/closed"), 0o710);
    const mask = layer(await library.get(host), "/usr", 0);
    for (const path of ["lib/app/secret.key", "share/closed", "local/etc"]) {
      const stats = await lstat(join(mask, path));
      expect([path, stats.isCharacterDevice(), stats.rdev]).toEqual([path, true, 0]);
    }
    expect(await isAbsent(join(mask, "bin"))).toBe(true);
    const { mode } = await lstat(join(mask, "lib/app"));
    expect(mode & 0o7777).toBe((await lstat(join(hostRoot, "usr/lib/app"))).mode & 0o7777);
  });

  test("is made once, also for many simultaneous requests", async () => {
    const other = new TemplateLibrary(dataDir, { hostRoot });
    const got = await Promise.all([library.get(host), library.get(host), other.get(host), other.get(host)]);
    expect(new Set(got.map(({ name }) => name)).size).toBe(1);
    expect(await library.list()).toEqual([got[0]?.name]);
    expect((await readdir(join(dataDir, "templates"))).filter((name) => name.startsWith("."))).toEqual([]);
  });

  test("is the same again for the next engine, and another when the host has changed", async () => {
    const before = await library.get(host);
    expect((await new TemplateLibrary(dataDir, { hostRoot }).get(host)).name).toBe(before.name);
    await writeFile(join(hostRoot, "etc/services"), "https 443/tcp");
    const after = await new TemplateLibrary(dataDir, { hostRoot }).get(host);
    expect(after.name).not.toBe(before.name);
    expect(await library.get(before.name)).toEqual(before);
  });

  test.for(["usr/local/lib/new.key", "usr/lib/app/new.key"])("sees that %s has become private", async (path) => {
    await put(join(hostRoot, "usr/lib/app/old"), "");
    await put(join(hostRoot, "usr/local/lib/old"), "");
    const before = await library.get(host);
    await put(join(hostRoot, path), "k");
    await chmod(join(hostRoot, path), 0o600);
    const after = await new TemplateLibrary(dataDir, { hostRoot }).get(host);
    expect(after.name).not.toBe(before.name);
    expect((await lstat(join(layer(after, "/usr", 0), path.slice("usr/".length)))).isCharacterDevice()).toBe(true);
  });

  test("of a host that has not merged its /usr has a tree for each directory", async () => {
    await rm(join(hostRoot, "lib"));
    await put(join(hostRoot, "lib/libc.so"), "");
    const { trees } = await library.get(host);
    expect(trees.map(({ at }) => at)).toEqual(["/", "/usr", "/lib"]);
    expect(trees[2]?.lower).toEqual([join(hostRoot, "lib")]);
  });

  test("that cannot be made is tried again by the next request", async () => {
    await rm(join(hostRoot, "usr"), { recursive: true });
    expect(await codeOf(library.get(host))).toBe("unsupported");
    await put(join(hostRoot, "usr/bin/true"), "#!");
    expect((await library.get(host)).trees.length).toBe(2);
  });
});

describe("a template of a root filesystem", () => {
  async function importFiles(files: Record<string, string>, name = "mine"): Promise<Template> {
    const directory = join(base, "rootfs");
    await putAll(directory, files);
    return library.importRootfs(named(name), { directory }, { signal });
  }
  const top = async (template: Template, path: string): Promise<string> =>
    readFile(join(layer(template, "/", 0), path), "utf8");

  test("from a directory uses it in place, under what it lacks", async () => {
    const template = await importFiles({
      "etc/passwd": "root:x:0:0::/root:/bin/sh",
      "etc/group": "root:x:0:\n",
      "bin/bash": "",
    });
    expect(template.trees).toEqual([{ at: "/", lower: [join(dataDir, "templates/mine/top"), join(base, "rootfs")] }]);
    expect(await top(template, "etc/passwd")).toBe(
      "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n",
    );
    expect(await top(template, "etc/group")).toBe("root:x:0:\nuser:x:1000:\n");
    expect(await top(template, "etc/hosts")).toContain("127.0.0.1 localhost");
    expect(await readFile(join(base, "rootfs/etc/passwd"), "utf8")).toBe("root:x:0:0::/root:/bin/sh");
    const made = await readdir(layer(template, "/", 0));
    expect(new Set(made)).toEqual(new Set(["dev", "etc", "home", "proc", "sys", "tmp"]));
    expect((await lstat(join(layer(template, "/", 0), "home/user"))).uid).toBe(1000);
    expect(await library.get(named("mine"))).toEqual(template);
  });

  test("that lacks nothing gets nothing", async () => {
    const passwd = "root:x:0:0::/root:/bin/sh\nuser:x:1234:1234::/elsewhere:/bin/zsh\n";
    const template = await importFiles({
      "etc/passwd": passwd,
      "etc/hosts": "127.0.0.1 localhost",
      "proc/x": "",
      "dev/x": "",
      "sys/x": "",
      "tmp/x": "",
    });
    const root = layer(template, "/", 0);
    expect(await readdir(root)).toEqual(["etc"]);
    expect(await readdir(join(root, "etc"))).toEqual([]);
  });

  test("without accounts gets root and the user, with the shell that is there", async () => {
    const template = await importFiles({ "bin/sh": "" });
    expect(await top(template, "etc/passwd")).toBe("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n");
  });

  test("its directories keep their owner and mode", async () => {
    await mkdir(join(base, "rootfs/etc"), { recursive: true });
    await chmod(join(base, "rootfs/etc"), 0o711);
    const template = await importFiles({ "bin/sh": "" });
    expect((await lstat(join(layer(template, "/", 0), "etc"))).mode & 0o7777).toBe(0o711);
  });

  test("from an archive is a copy", async () => {
    await writeFile(
      join(base, "a.tar"),
      forgeTar({ path: "etc/passwd", content: "root:x:0:0::/root:/bin/sh\n" }, { path: "bin/bash" }),
    );
    const template = await library.importRootfs(named("mine"), { archive: join(base, "a.tar") }, { signal });
    expect(template.trees[0]?.lower).toEqual([
      join(dataDir, "templates/mine/top"),
      join(dataDir, "templates/mine/rootfs"),
    ]);
    expect(await readFile(join(dataDir, "templates/mine/rootfs/etc/passwd"), "utf8")).toContain("root");
    expect(await top(template, "etc/passwd")).toContain("user:x:1000");
    // Files in it may be setuid, so no other user may reach them by path.
    expect((await lstat(join(dataDir, "templates/mine"))).mode & 0o077).toBe(0);
  });

  test.for([
    {
      trick: "an /etc that leads to the host's",
      entries: [{ path: "etc", type: "2", linkPath: "/etc" }, { path: "bin/sh" }],
    },
    {
      trick: "a passwd that leads to the host's",
      entries: [{ path: "etc/passwd", type: "2", linkPath: "/etc/passwd" }, { path: "bin/sh" }],
    },
  ])("$trick is refused", async ({ entries }) => {
    await writeFile(join(base, "a.tar"), forgeTar(...entries));
    expect(await codeOf(library.importRootfs(named("mine"), { archive: join(base, "a.tar") }, { signal }))).toBe(
      "invalid_argument",
    );
    expect(await readdir(join(dataDir, "templates"))).toEqual([]);
  });

  test("a /home that is a link is left alone", async () => {
    const archive = forgeTar({ path: "home", type: "2", linkPath: "/var/home" }, { path: "bin/sh" });
    await writeFile(join(base, "a.tar"), archive);
    const template = await library.importRootfs(named("mine"), { archive: join(base, "a.tar") }, { signal });
    expect(await top(template, "etc/passwd")).toContain("user:x:1000:1000::/tmp:");
    expect(await isAbsent(join(layer(template, "/", 0), "home"))).toBe(true);
  });

  test("an image archive is not taken for a root filesystem", async () => {
    await writeFile(join(base, "a.tar"), forgeTar({ path: "oci-layout", content: "{}" }, { path: "blobs/sha256/x" }));
    const imported = library.importRootfs(named("mine"), { archive: join(base, "a.tar") }, { signal });
    await expect(imported).rejects.toMatchObject({
      code: "invalid_argument",
      suggestion: expect.stringContaining("docker export"),
    });
  });

  test.for([
    { what: "the machine's own root", directory: "/" },
    { what: "a relative path", directory: "rootfs" },
    { what: "a path that is not there", directory: "/no/such" },
    { what: "a file", directory: "/etc/passwd" },
  ])("$what is no root filesystem", async ({ directory }) => {
    expect(await codeOf(library.importRootfs(named("mine"), { directory }, { signal }))).toBe("invalid_argument");
    expect(await library.list()).toEqual([]);
  });

  test("an empty one is refused", async () => {
    await mkdir(join(base, "rootfs"));
    expect(await codeOf(importFiles({}))).toBe("invalid_argument");
  });
});

describe("the library", () => {
  const archive = async (): Promise<{ archive: string }> => {
    await writeFile(join(base, "a.tar"), forgeTar({ path: "bin/sh", content: "x".repeat(100_000) }));
    return { archive: join(base, "a.tar") };
  };

  test("a missing name is not found, and the existing ones are named", async () => {
    await library.importRootfs(named("mine"), await archive(), { signal });
    await expect(library.get(named("yours"))).rejects.toMatchObject({
      code: "not_found",
      suggestion: expect.stringContaining("host, mine"),
    });
  });

  test("of many who import under one name one succeeds", async () => {
    const source = await archive();
    const codes = await Promise.all(
      Array.from({ length: 4 }, () => codeOf(library.importRootfs(named("mine"), source, { signal }))),
    );
    expect(codes.filter((code) => code === "resolved").length).toBe(1);
    expect(codes.filter((code) => code === "already_exists").length).toBe(3);
    expect(await readdir(join(dataDir, "templates"))).toEqual(["mine"]);
  });

  test("the names of the host's templates cannot be taken", async () => {
    const source = await archive();
    for (const name of ["host", "host-0123456789abcdef"]) {
      expect(await codeOf(library.importRootfs(named(name), source, { signal }))).toBe("invalid_argument");
    }
  });

  test("removing is idempotent, and the name is free again", async () => {
    const source = await archive();
    await library.importRootfs(named("mine"), source, { signal });
    await library.remove(named("mine"));
    await library.remove(named("mine"));
    expect(await readdir(join(dataDir, "templates"))).toEqual([]);
    expect(await codeOf(library.importRootfs(named("mine"), source, { signal }))).toBe("resolved");
    expect(await codeOf(library.remove(host))).toBe("invalid_argument");
  });

  test("a template of the host that was removed is made again", async () => {
    const { name } = await library.get(host);
    await library.remove(name);
    expect((await library.get(host)).name).toBe(name);
    expect(await library.list()).toEqual([name]);
  });

  test("leftovers of a crash are not listed, and are removed", async () => {
    await putAll(join(dataDir, "templates"), { ".new-mine-abc/rootfs/file": "", "half/rootfs/file": "" });
    expect(await library.list()).toEqual([]);
    expect(await codeOf(library.get(named("half")))).toBe("not_found");
    await library.sweep();
    expect(await readdir(join(dataDir, "templates"))).toEqual(["half"]);
  });

  test("a template of another version is an error of its own", async () => {
    await put(join(dataDir, "templates/old/template.json"), '{"version":99}');
    expect(await codeOf(library.get(named("old")))).toBe("unsupported");
  });

  test("an import that is called off leaves nothing", async () => {
    const controller = new AbortController();
    const imported = library.importRootfs(named("mine"), await archive(), { signal: controller.signal });
    controller.abort(new Error("no longer wanted"));
    await expect(imported).rejects.toThrow("no longer wanted");
    expect(await readdir(join(dataDir, "templates"))).toEqual([]);
  });
});
