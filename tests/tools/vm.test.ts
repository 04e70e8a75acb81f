import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { inLoadOrder } from "../../tools/vm/kernel.mjs";
import { quoted, readResult, testScript } from "../../tools/vm/test-session.mjs";

let dir: string;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "atoll-vm-test-"));
});

afterEach(async () => {
  await rm(dir, { recursive: true });
});

describe("the script of the machine", () => {
  /**
   * Returns the words with which the script starts the tests. The shell is real; the test runner is a fake that exits
   * with 7.
   */
  function wordsOf(args: readonly string[]): string[] {
    const stubs = [
      "mkdir() { :; }",
      "uname() { echo test; }",
      'cat() { while IFS= read -r line; do echo "$line"; done; }',
    ];
    const print = "env() { for word; do printf '%s' \"$word\" | od -An -v -tx1 | tr -d ' \\n'; echo; done; return 7; }";
    const script = [...stubs, print, testScript(args, dir)].join("\n").replace(/^echo "Linux.*$/m, "");
    const output = execFileSync("sh", ["-c", script], { encoding: "utf8" });
    return output
      .trimEnd()
      .split("\n")
      .map((hex) => Buffer.from(hex, "hex").toString());
  }

  const filesIn = (words: readonly string[]) => words.filter((word) => word.endsWith(".test.ts"));

  test("runs the tests of limits without the host's environment", () => {
    const words = wordsOf([]);
    expect(words[0]).toBe("-i");
    expect(words).toEqual(expect.arrayContaining(["ATOLL_TEST_CGROUPS=2", "ATOLL_TEST_PATIENCE=10"]));
    expect(words).toContain(`ATOLL_TEST_SUMMARY=${dir}/summary.json`);
    expect(words.some((word) => word.endsWith("/vitest.mjs"))).toBe(true);
    expect(filesIn(words)).toContain("tests/integration/limits.test.ts");
  });

  test("runs only the named files", () => {
    expect(filesIn(wordsOf(["tests/integration/cgroups.test.ts"]))).toEqual(["tests/integration/cgroups.test.ts"]);
  });

  test("passes arguments on unchanged, including characters that are special in a shell", () => {
    const nasty = ["-t", 'it\'s $HOME; `id` "x"\n* \\'];
    const words = wordsOf(nasty);
    expect(words.slice(-2)).toEqual(nasty);
    expect(filesIn(words).length).toBeGreaterThan(1);
  });

  test("keeps the exit code of the tests, not of the pipe after them", async () => {
    wordsOf([]);
    expect(await readResult(dir)).toEqual({ exitCode: 7, summary: undefined });
  });

  test.for(["", "plain", "it's", "''", "a b\n$c"])("quotes %j as one word", (word) => {
    expect(execFileSync("sh", ["-c", `printf %s ${quoted(word)}`], { encoding: "utf8" })).toBe(word);
  });
});

describe("the directory that the machine writes", () => {
  test("is read as the result of the session", async () => {
    const summary = { passed: 3, failed: 0, skipped: [] };
    await writeFile(join(dir, "exit-code"), "0\n");
    await writeFile(join(dir, "summary.json"), JSON.stringify(summary));
    expect(await readResult(dir)).toEqual({ exitCode: 0, summary });
  });

  test("counts as a failure if it is empty", async () => {
    expect(await readResult(dir)).toEqual({ exitCode: 1, summary: undefined });
  });
});

describe("modules of the kernel", () => {
  /** Writes modules as in a kernel package: in different directories, each with the names of its dependencies. */
  async function addModules(depends: Readonly<Record<string, string>>): Promise<void> {
    for (const [path, needed] of Object.entries(depends)) {
      await mkdir(join(dir, dirname(path)), { recursive: true });
      await writeFile(join(dir, path), `\0license=GPL\0depends=${needed}\0`);
    }
  }

  const all = {
    "6.1/fs/ext4.ko": "jbd2,mbcache",
    "6.1/fs/jbd2.ko": "",
    "6.1/fs/mbcache.ko": "",
    "6.1/fs/overlay.ko": "",
    "6.1/fs/9p.ko": "9pnet",
    "6.1/net/9pnet.ko": "",
    "6.1/net/9pnet_virtio.ko": "9pnet,virtio",
    "6.1/virtio/virtio.ko": "",
    "6.1/virtio/virtio_pci.ko": "virtio",
    "6.1/virtio/virtio_blk.ko": "virtio",
    "6.1/crypto/crc32c-generic.ko": "",
    "6.1/sound/snd.ko": "",
  };

  test("are the wanted ones and their dependencies, each once and after its dependencies", async () => {
    await addModules(all);
    const names = (await inLoadOrder(dir)).map((path) => basename(path, ".ko").replaceAll("-", "_"));
    expect(new Set(names).size).toBe(names.length);
    expect(names).toHaveLength(Object.keys(all).length - 1);
    for (const [path, needed] of Object.entries(all)) {
      for (const name of needed.split(",").filter((word) => word !== "")) {
        expect(names.indexOf(name)).toBeLessThan(names.indexOf(basename(path, ".ko")));
      }
    }
    expect(names).not.toContain("snd");
  });

  test("that are missing are named in the error", async () => {
    const { "6.1/fs/mbcache.ko": _, ...rest } = all;
    await addModules(rest);
    await expect(inLoadOrder(dir)).rejects.toThrow("The kernel has no module mbcache");
  });
});

test("the first program of the machine is a script that a shell can parse", async () => {
  const script = new URL("../../tools/vm/init.sh", import.meta.url).pathname;
  execFileSync("sh", ["-n", script]);
  expect(await readFile(script, "utf8")).toMatch(/^#!\/bin\/busybox sh\n/);
});
