import { execFileSync } from "node:child_process";
import { link, mkdir, mkdtemp, rename, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { measureTree } from "../../src/limits/disk-usage.ts";

const KiB = 1024;
let root: string;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "atoll-disk-"));
});
afterEach(() => {
  // Node's own rm cannot remove a tree that is deeper than a path may be long.
  execFileSync("rm", ["-rf", root]);
});

const measure = (path = root): Promise<number> => measureTree(path, { signal: new AbortController().signal });

/** Returns the result of the system's own program, with 4 KiB for each entry without a block. */
function du(path = root): number {
  const count = (command: string): number =>
    Number(execFileSync("sh", ["-c", command, path]).toString().split("\t")[0]);
  return (
    count('du -sx -B1 "$0"') + 4 * KiB * count(`find "$0" -xdev -printf '%b\\n' | awk '$1==0 {n++} END {print n+0}'`)
  );
}

describe("a tree's size", () => {
  test("is what du says, for files, directories and links of all kinds", async () => {
    await mkdir(join(root, "a/b/c"), { recursive: true });
    await writeFile(join(root, "a/file"), Buffer.alloc(100 * KiB, 1));
    await writeFile(join(root, "a/b/file"), "x");
    await link(join(root, "a/file"), join(root, "a/b/same"));
    await symlink("/usr", join(root, "a/b/c/usr"));
    await symlink("/nowhere", join(root, "dangling"));
    execFileSync("sh", ["-c", 'mkfifo "$0"', join(root, "fifo")]);
    expect(await measure()).toBe(du());
    expect(await measure()).toBeGreaterThanOrEqual(100 * KiB);
    expect(await measure()).toBeLessThan(200 * KiB);
  });

  test("counts what is allocated, not what a sparse file claims", async () => {
    await writeFile(join(root, "sparse"), "");
    await truncate(join(root, "sparse"), 10 * 1024 ** 3);
    expect(await measure()).toBeLessThan(100 * KiB);
  });

  test("has 4 KiB for each entry at least, so that it bounds inodes, too", async () => {
    const empty = await measure();
    await Promise.all(Array.from({ length: 300 }, (_, index) => writeFile(join(root, `f${index}`), "")));
    await Promise.all(Array.from({ length: 100 }, (_, index) => symlink("x", join(root, `l${index}`))));
    expect(await measure()).toBeGreaterThanOrEqual(empty + 400 * 4 * KiB);
  });

  test("is not measured beyond what is enough", async () => {
    await Promise.all(
      Array.from({ length: 40 }, async (_, index) => {
        await mkdir(join(root, `d${index}`));
        await writeFile(join(root, `d${index}/file`), Buffer.alloc(100 * KiB, 1));
      }),
    );
    const all = await measure();
    const enoughBytes = 500 * KiB;
    const some = await measureTree(root, { signal: new AbortController().signal, enoughBytes });
    expect(some).toBeGreaterThan(enoughBytes);
    expect(some).toBeLessThan(all / 2);
    expect(await measureTree(root, { signal: new AbortController().signal, enoughBytes: all })).toBe(all);
  });

  test("counts every entry of a large directory", async () => {
    await Promise.all(Array.from({ length: 600 }, (_, index) => writeFile(join(root, `f${index}`), "x")));
    expect(await measure()).toBe(du());
  });

  test("includes files deeper than a path may be long", async () => {
    // The script makes 40 levels of 200 characters; 4096 is the longest path.
    const script = `cd "$1" && for i in $(seq 40); do mkdir "$2" && cd "$2" || exit 1; done
head -c 200000 /dev/zero > file`;
    execFileSync("bash", ["-c", script, "bash", root, "d".repeat(200)]);
    expect(await measure()).toBe(du());
    expect(await measure()).toBeGreaterThan(200_000);
  });

  test.for([
    { what: "names that are not UTF-8", name: String.raw`$'\xff'` },
    { what: "names that would be too long as UTF-8", name: String.raw`$(printf '\xff%.0s' $(seq 200))` },
    { what: "names with characters of several bytes", name: "ä€" },
  ])("includes files below $what", async ({ name }) => {
    const script = `cd "$1" && mkdir ${name} && cd ${name} && mkdir ${name}
head -c 200000 /dev/zero > ${name}/${name}`;
    execFileSync("bash", ["-c", script, "bash", root]);
    expect(await measure()).toBe(du());
    expect(await measure()).toBeGreaterThan(200_000);
  });

  test("is that of a path with characters of several bytes", async () => {
    const path = join(root, "ä€");
    await mkdir(path);
    await writeFile(join(path, "file"), Buffer.alloc(100 * KiB, 1));
    expect(await measure(path)).toBe(du(path));
  });

  test("is 0 for a directory that is not there", async () => {
    expect(await measure(join(root, "gone"))).toBe(0);
  });

  test("does not leave the tree when links take the place of directories", async () => {
    await mkdir(join(root, "inside/dir"), { recursive: true });
    await mkdir(join(root, "tree"));
    await writeFile(join(root, "inside/dir/large"), Buffer.alloc(1024 * KiB, 1));
    await Promise.all(
      Array.from({ length: 200 }, (_, index) => mkdir(join(root, `tree/d${index}/dir`), { recursive: true })),
    );
    await symlink(join(root, "inside"), join(root, "link"));
    const empty = await measure(join(root, "tree"));
    const done = new AbortController();
    const path = (index: number): string => join(root, `tree/d${index % 200}`);
    // At any time some of the directories are replaced by links; which ones changes with each swap.
    const swap = async (): Promise<void> => {
      for (let index = 0; !done.signal.aborted; index++) {
        await rename(path(index), join(root, `aside${index % 200}`));
        await symlink(join(root, "inside"), path(index));
        if (index < 40) continue;
        await rm(path(index - 40));
        await rename(join(root, `aside${(index - 40) % 200}`), path(index - 40));
      }
    };
    const swapping = swap();
    for (let round = 0; round < 6; round++) expect(await measure(join(root, "tree"))).toBeLessThanOrEqual(empty);
    done.abort();
    await swapping;
  });

  test("can be measured while everything is being removed", async () => {
    await Promise.all(
      Array.from({ length: 200 }, async (_, index) => {
        await mkdir(join(root, `d${index}/e`), { recursive: true });
        await writeFile(join(root, `d${index}/e/f`), "x");
      }),
    );
    const [size] = await Promise.all([measure(), rm(root, { recursive: true })]);
    expect(size).toBeGreaterThan(0);
    expect(await measure()).toBe(0);
  });

  test("an abort ends the walk with its own reason", async () => {
    await mkdir(join(root, "a"));
    const measured = measureTree(root, { signal: AbortSignal.abort(new Error("enough")) });
    await expect(measured).rejects.toThrow("enough");
  });
});
