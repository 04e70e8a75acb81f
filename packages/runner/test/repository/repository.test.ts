import { mkdtemp, readdir, readlink, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { RepoSpec } from "../../src/models/sandbox-config.ts";
import { RepoSpec as RepoSpecModel } from "../../src/models/sandbox-config.ts";
import { Repository } from "../../src/repository/repository.ts";
import { GitRepository } from "../support/git-repository.ts";

let cache: string;
const { signal } = new AbortController();

beforeEach(async () => {
  cache = await mkdtemp(join(tmpdir(), "atoll-runner-cache-"));
});

afterEach(() => rm(cache, { recursive: true, force: true }));

const at = () => ({ cacheDirectory: cache, scratch: cache, signal });

const specOf = (input: object): RepoSpec => RepoSpecModel.parse(input);

/** The work tree that the sandbox would get, checked out in a directory of the test. */
async function checkOut(repository: Repository): Promise<string> {
  const tree = join(cache, "tree");
  await repository.exportTo(join(tree, ".git"));
  expect(await gitIn(tree, "reset", "--quiet", "--hard")).toMatchObject({ exitCode: 0 });
  return tree;
}

const gitIn = (directory: string, ...args: string[]) =>
  run("git", args, { signal, timeoutMs: 60_000, cwd: directory, env: { GIT_CONFIG_GLOBAL: "/dev/null" } });

test("the exported tree has the bytes of the commit, whatever its attributes say", async () => {
  await using source = await GitRepository.make({
    ".gitattributes": "*.txt eol=crlf text\nhidden export-ignore\nid ident\n*.u working-tree-encoding=UTF-16LE\n",
    "a.txt": "one\ntwo\n",
    hidden: "still here",
    id: "$Id$",
    "x.u": Buffer.from("text", "utf16le"),
    "run.sh": { executable: "#!/bin/sh\n" },
    link: { link: "../../outside" },
    "name\nwith newline": "odd",
  });
  await using repository = await Repository.open(specOf({ path: source.path }), at());
  const tree = await checkOut(repository);
  expect(await readFile(join(tree, "a.txt"), "utf8")).toBe("one\ntwo\n");
  expect(await readFile(join(tree, "hidden"), "utf8")).toBe("still here");
  expect(await readFile(join(tree, "id"), "utf8")).toBe("$Id$");
  expect(await readFile(join(tree, "x.u"), "utf8")).toBe("text");
  expect((await stat(join(tree, "run.sh"))).mode & 0o111).toBe(0o111);
  expect(await readlink(join(tree, "link"))).toBe("../../outside");
  expect(await readFile(join(tree, "name\nwith newline"), "utf8")).toBe("odd");
  expect((await gitIn(tree, "status", "--short")).stdout).toBe("");
});

test("nothing before or after the commit can be read from the exported tree", async () => {
  await using source = await GitRepository.make({ a: "past" });
  const commit = await source.commit({ a: "present" });
  const later = await source.commit({ a: "future" });
  await source.git("tag", "v9");
  await using repository = await Repository.open(specOf({ path: source.path, ref: commit }), at());
  const tree = await checkOut(repository);
  expect((await gitIn(tree, "rev-list", "--all", "--count")).stdout.trim()).toBe("1");
  expect((await gitIn(tree, "cat-file", "-e", later)).exitCode).not.toBe(0);
  expect((await gitIn(tree, "tag")).stdout).toBe("");
  const objects = (await gitIn(tree, "cat-file", "--batch-all-objects", "--batch-check")).stdout.trim().split("\n");
  // One commit, one tree, one file.
  expect(objects).toHaveLength(3);
});

test("a submodule is an empty directory and a hook of the source is not there", async () => {
  await using source = await GitRepository.make({ a: "1" });
  const id = (await source.git("rev-parse", "HEAD")).trim();
  await source.git("update-index", "--add", "--cacheinfo", `160000,${id},sub`);
  await source.git("commit", "--quiet", "--message", "A submodule");
  await writeFile(join(source.path, ".git", "hooks", "post-checkout"), "#!/bin/sh\ntouch hooked\n", { mode: 0o755 });
  await using repository = await Repository.open(specOf({ path: source.path }), at());
  const tree = await checkOut(repository);
  expect(await readdir(join(tree, "sub"))).toEqual([]);
  expect(await readdir(join(tree, ".git"))).not.toContain("hooks");
  expect(await readdir(tree)).not.toContain("hooked");
});

test("a program that the source configures is not run", async () => {
  await using source = await GitRepository.make({ a: "1" });
  const marker = join(cache, "marker");
  await source.git("config", "core.fsmonitor", `touch ${marker}`);
  await source.git("config", "core.sshCommand", `touch ${marker}`);
  await source.git("config", "remote.origin.url", `ext::touch ${marker}`);
  await source.git("config", "remote.origin.promisor", "true");
  await using repository = await Repository.open(specOf({ path: source.path }), at());
  await checkOut(repository);
  expect(await readdir(cache)).not.toContain("marker");
});

test.for([["o__r.git"], ["o__r"], ["o/r"]])("a clone in a mirror folder is found as %s", async ([name = ""]) => {
  await using source = await GitRepository.make({ a: "1" });
  const mirror = join(cache, "mirror");
  await gitIn(cache, "clone", "--quiet", "--bare", source.path, join(mirror, name));
  await using repository = await Repository.open(specOf({ mirror, name: "o/r" }), at());
  expect(await repository.read("a")).toBe("1");
});

test("a repository at a URL is fetched, this one commit only", async () => {
  await using source = await GitRepository.make({ a: "past" });
  const first = (await source.git("rev-parse", "HEAD")).trim();
  await source.git("tag", "v1");
  await source.commit({ a: "present" });
  await source.git("config", "uploadpack.allowAnySHA1InWant", "true");
  const url = `file://${source.path}`;
  for (const ref of ["v1", first]) {
    await using repository = await Repository.open(specOf({ url, ref }), at());
    expect(repository.commit).toBe(first);
    expect(await repository.read("a")).toBe("past");
  }
  await using head = await Repository.open(specOf({ url, ref: "main" }), at());
  expect(await head.read("a")).toBe("present");
});

test("files and directories are read without a work tree", async () => {
  await using source = await GitRepository.make({ "d/b": "b", "d/a": "a", top: "t", link: { link: "top" } });
  await source.git("tag", "-a", "-m", "x", "v1.2");
  await using repository = await Repository.open(specOf({ path: source.path }), at());
  expect(await repository.list("")).toEqual(["d", "link", "top"]);
  expect(await repository.list("d")).toEqual(["a", "b"]);
  expect(await repository.list("absent")).toEqual([]);
  expect(await repository.read("d/a")).toBe("a");
  expect(await repository.read("absent")).toBeUndefined();
  expect(await repository.read("link")).toBeUndefined();
  expect(await repository.describe()).toMatch(/^v1\.2-0-g/);
});

test("the paths of a patch are those that it changes, also of a rename", async () => {
  await using source = await GitRepository.make({ "tests/old.py": "x = 1\n".repeat(20), "tests/kept.py": "a\n" });
  const patch = await source.patch({
    "tests/old.py": null,
    "tests/new.py": "x = 1\n".repeat(20),
    "tests/kept.py": "b\n",
    "data.bin": new Uint8Array([0, 1, 2, 255]),
  });
  await using repository = await Repository.open(specOf({ path: source.path }), at());
  expect(await repository.changedPaths(patch, "The test patch")).toEqual([
    { status: "A", path: "data.bin" },
    { status: "M", path: "tests/kept.py" },
    { status: "A", path: "tests/new.py" },
    { status: "D", path: "tests/old.py" },
  ]);
  await expect(repository.changedPaths(patch.replace("-a\n", "-z\n"), "The test patch")).rejects.toThrow(
    /The test patch does not apply/,
  );
});

test("what cannot be found says what to do", async () => {
  await using source = await GitRepository.make({ a: "1" });
  const open = (input: object) => Repository.open(specOf(input), at());
  await expect(open({ path: source.path, ref: "nowhere" })).rejects.toThrow(/Cannot find nowhere .* fetch it: git -C/);
  await expect(open({ path: join(cache, "absent") })).rejects.toThrow(/there is no such directory/);
  await expect(open({ mirror: cache, name: "o/r" })).rejects.toThrow(/Make one: git clone --bare/);
  await expect(open({ url: `file://${source.path}`, ref: "nowhere" })).rejects.toThrow(/Cannot find nowhere at/);
});
