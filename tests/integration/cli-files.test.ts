import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { lstat, mkdir, mkdtemp, open, readFile, readdir, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runAtoll, RunningAtoll } from "../support/atoll-command.ts";
import { startTestServer, type TestServer } from "../support/test-server.ts";

let server: TestServer;
let id: string;
let here: string;

beforeAll(async () => {
  here = await mkdtemp(join(tmpdir(), "atoll-cp-"));
  server = await startTestServer();
  id = (await runAtoll(server, ["create", "--driver", "local"])).stdout.trim();
});
afterAll(async () => {
  await server.dispose();
  await rm(here, { recursive: true, force: true });
});

const cp = async (from: string, to: string, options: Parameters<typeof runAtoll>[2] = {}) =>
  runAtoll(server, ["cp", from, to], options);
const done = { exitCode: 0, stdout: "", stderr: "" };

/** Returns the highest resident memory of a copy in kilobytes, sampled while it runs. */
async function mostMemory(from: string, to: string): Promise<number> {
  await using running = new RunningAtoll(server, ["cp", from, to]);
  let most = 0;
  const look = setInterval(() => {
    void readFile(`/proc/${running.child.pid}/status`, "utf8")
      // The process may have ended since.
      .catch(() => "")
      .then((status) => {
        most = Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? most);
      });
  }, 50);
  try {
    expect((await running.ended).exitCode).toBe(0);
  } finally {
    clearInterval(look);
  }
  expect(most).toBeGreaterThan(0);
  return most;
}

describe("cp", () => {
  test("copies a file in and out again with the same bytes and mode", async () => {
    const content = randomBytes(2_000_001);
    await writeFile(join(here, "tool"), content, { mode: 0o755 });
    expect(await cp(join(here, "tool"), `${id}:/tmp/`)).toEqual(done);
    expect(await cp(`${id}:/tmp/tool`, join(here, "back"))).toEqual(done);
    expect((await readFile(join(here, "back"))).equals(content)).toBe(true);
    expect((await lstat(join(here, "back"))).mode & 0o777).toBe(0o755);
  });

  test("suggests how to copy where the user in the sandbox has no permission", async () => {
    await mkdir(join(here, "few"));
    await writeFile(join(here, "few", "file"), "x");
    for (const from of ["few", "few/file"]) {
      const { exitCode, stderr } = await cp(join(here, from), `${id}:/etc/`);
      expect(exitCode).toBe(1);
      expect(stderr).toMatch(
        /^error: Cannot .*\nhint: User user in the sandbox may not do that; -u root copies as root\.\n$/,
      );
    }
    const asRoot = await runAtoll(server, ["cp", "-u", "root", join(here, "few"), `${id}:/etc/`]);
    expect(asRoot).toEqual(done);
    const { stderr } = await cp(join(here, "few", "file"), `${id}:/etc/few/file`);
    expect(stderr).toContain("-u root");
    // Not even root may write there.
    const never = await runAtoll(server, ["cp", "-u", "root", join(here, "few/file"), `${id}:/proc/x`]);
    expect(never.stderr).not.toContain("hint:");
  });

  test("copies a directory in and out again, with links, empty directories and long names", async () => {
    const tree = join(here, "tree");
    const long = "l".repeat(150);
    await mkdir(join(tree, "empty"), { recursive: true });
    await mkdir(join(tree, long));
    await writeFile(join(tree, long, "ü.txt"), "deep");
    await symlink(join(long, "ü.txt"), join(tree, "link"));
    expect(await cp(tree, `${id}:/tmp/copy`)).toEqual(done);
    expect(await cp(`${id}:/tmp/copy`, join(here, "copy"))).toEqual(done);
    const names = async (directory: string) => (await readdir(directory, { recursive: true })).toSorted();
    expect(await names(join(here, "copy"))).toEqual(await names(tree));
    expect(await readFile(join(here, "copy", "link"), "utf8")).toBe("deep");
    expect(await readlink(join(here, "copy", "link"))).toBe(join(long, "ü.txt"));
  });

  test.for([
    "with space and 'quotes\"",
    "-rf",
    "new\nline",
    "back\\slash",
    "a:b",
    "ünï — 文件 🙂",
    "%41?query#hash&x=1",
    "n".repeat(255),
  ])("copies a file called %j in and out, alone and in a directory", async (name) => {
    const [source, target] = [await mkdtemp(join(here, "odd-")), await mkdtemp(join(here, "odd-"))];
    await writeFile(join(source, name), name);
    expect(await cp(join(source, name), `${id}:/tmp/`)).toEqual(done);
    expect(await cp(`${id}:/tmp/${name}`, join(target, name))).toEqual(done);
    expect(await readFile(join(target, name), "utf8")).toBe(name);
    expect(await cp(source, `${id}:${source}`)).toEqual(done);
    expect(await cp(`${id}:${source}`, join(target, "tree"))).toEqual(done);
    expect(await readdir(join(target, "tree"))).toEqual([name]);
    expect(await readdir(target)).toEqual([name, "tree"].toSorted());
  });

  test("uses little memory for a large file", async () => {
    const path = join(here, "large");
    const content = randomBytes(1_000_000);
    await writeFile(path, Buffer.concat(Array.from({ length: 250 }, () => content)));
    expect(await mostMemory(path, `${id}:/tmp/large`)).toBeLessThan(200_000);
    expect(await mostMemory(`${id}:/tmp/large`, join(here, "large-back"))).toBeLessThan(200_000);
    expect((await readFile(join(here, "large-back"))).equals(await readFile(path))).toBe(true);
  });

  test("puts a directory under its own name into an existing one", async () => {
    const inner = join(here, "inner");
    await mkdir(inner);
    await writeFile(join(inner, "file"), "x");
    await runAtoll(server, ["exec", id, "--", "mkdir", "/tmp/there"]);
    expect(await cp(inner, `${id}:/tmp/there`)).toEqual(done);
    expect((await cp(`${id}:/tmp/there/inner/file`, "-")).stdout).toBe("x");
  });

  test("reads from stdin and writes to stdout", async () => {
    expect(await cp("-", `${id}:/tmp/note`, { stdin: "from a pipe" })).toEqual(done);
    expect(await cp(`${id}:/tmp/note`, "-")).toEqual({ ...done, stdout: "from a pipe" });
  });

  test("writes nothing if the source is missing", async () => {
    const outcome = await cp(`${id}:/tmp/missing`, join(here, "never"));
    expect(outcome).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("/tmp/missing") });
    expect(await readdir(here)).not.toContain("never");
  });

  test("copies hard links out, and reports what it leaves out", async () => {
    const make = "mkdir /tmp/linked && cd /tmp/linked && echo one > a && ln a b && mkfifo \"$(printf 'pipe\\033[2J')\"";
    await runAtoll(server, ["exec", id, "--", "sh", "-c", make]);
    const outcome = await cp(`${id}:/tmp/linked`, join(here, "linked"));
    expect(outcome).toEqual({ ...done, stderr: String.raw`pipe\x1b[2J: left out` + "\n" });
    expect(await readdir(join(here, "linked"))).toEqual(["a", "b"]);
    expect(await readFile(join(here, "linked", "b"), "utf8")).toBe("one\n");
    const { stdout } = await runAtoll(server, ["cp", "--json", `${id}:/tmp/linked`, join(here, "linked-again")]);
    expect(JSON.parse(stdout)).toMatchObject({ files: 2, bytes: 4, leftOut: ["pipe\u001b[2J"] });
  });

  test("writes into an existing pipe, and through an existing link", async () => {
    await runAtoll(server, ["exec", id, "--", "sh", "-c", "echo content > /tmp/content"]);
    execFileSync("bash", ["-c", `mkfifo "$0"`, join(here, "fifo")]);
    await symlink("linked-to", join(here, "link"));
    await using reader = await open(join(here, "fifo"), constants.O_RDONLY | constants.O_NONBLOCK);
    expect(await cp(`${id}:/tmp/content`, join(here, "fifo"))).toEqual(done);
    expect(await reader.readFile("utf8")).toBe("content\n");
    expect(await cp(`${id}:/tmp/content`, join(here, "link"))).toEqual(done);
    expect(await readlink(join(here, "link"))).toBe("linked-to");
    expect(await readFile(join(here, "linked-to"), "utf8")).toBe("content\n");
  });

  test("does not follow a link of the sandbox out of the target directory", async () => {
    const plant =
      "mkdir /tmp/trap && ln -s /etc /tmp/trap/way && ln -s ../../../etc/passwd /tmp/trap/out && echo > /tmp/trap/ok";
    await runAtoll(server, ["exec", id, "--", "sh", "-c", plant]);
    const outcome = await cp(`${id}:/tmp/trap`, join(here, "trap"));
    expect(outcome.exitCode).toBe(0);
    expect(outcome.stderr).toContain("way -> /etc: left out");
    expect(await readdir(join(here, "trap"))).toEqual(["ok"]);
  });

  test("refuses to copy from one local path to another", async () => {
    const outcome = await cp("a", "b");
    expect(outcome.exitCode).toBe(2);
    expect(outcome.stderr).toContain("hint: Write that one as <sandbox>:<path>.");
  });
});
