import { execFileSync } from "node:child_process";
import { constants } from "node:fs";
import { lstat, mkdir, mkdtemp, open, readdir, readFile, readlink, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { saveStream } from "../../src/transfer/save-stream.ts";

let root: string;
const { signal } = new AbortController();

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "atoll-save-"));
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
});

function save(text: string, target: string): Promise<number> {
  return saveStream(new Blob([text]).stream(), target, { signal, onBytes: () => undefined });
}

describe("a saved stream", () => {
  test("replaces a file, or makes a new one", async () => {
    await writeFile(join(root, "old"), "the old content");
    expect(await save("new", join(root, "old"))).toBe(3);
    await save("new", join(root, "other"));
    expect(await readFile(join(root, "old"), "utf8")).toBe("new");
    expect(await readFile(join(root, "other"), "utf8")).toBe("new");
    expect(await readdir(root)).toEqual(["old", "other"]);
  });

  test("is refused with its own name where its directory is missing", async () => {
    const target = join(root, "missing", "file");
    await expect(save("new", target)).rejects.toThrow(
      new Error(`Cannot write ${target}: ENOENT: no such file or directory`),
    );
  });

  test.for(["straight", "by a link"])("goes into a pipe, %s, and leaves it a pipe", async (way) => {
    const pipe = join(root, "pipe");
    execFileSync("bash", ["-c", `mkfifo "$0"`, pipe]);
    const target = way === "straight" ? pipe : join(root, "link");
    if (way === "by a link") await symlink("pipe", target);
    // O_NONBLOCK opens the pipe without waiting for a writer.
    await using reader = await open(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    await save("through", target);
    expect((await lstat(pipe)).isFIFO()).toBe(true);
    expect((await lstat(target)).isSymbolicLink()).toBe(way === "by a link");
    expect(await reader.readFile("utf8")).toBe("through");
  });

  test("goes to the file that a link leads to, through other links and directories", async () => {
    await mkdir(join(root, "real"));
    await writeFile(join(root, "real", "file"), "old");
    await symlink("real", join(root, "directory"));
    await symlink("file", join(root, "real", "inner"));
    await symlink("directory/inner", join(root, "link"));
    await save("new", join(root, "link"));
    expect(await readlink(join(root, "link"))).toBe("directory/inner");
    expect(await readlink(join(root, "real", "inner"))).toBe("file");
    expect((await lstat(join(root, "real", "file"))).isFile()).toBe(true);
    expect(await readFile(join(root, "real", "file"), "utf8")).toBe("new");
    expect(await readdir(join(root, "real"))).toEqual(["file", "inner"]);
  });

  test("creates the missing file that a link leads to", async () => {
    await mkdir(join(root, "deep", "er"), { recursive: true });
    await symlink("deep/er", join(root, "directory"));
    await symlink("../file", join(root, "deep", "er", "link"));
    await save("new", join(root, "directory", "link"));
    expect(await readlink(join(root, "deep", "er", "link"))).toBe("../file");
    expect(await readFile(join(root, "deep", "file"), "utf8")).toBe("new");
  });

  test("is not begun where a directory is, and its source is cancelled", async () => {
    const cancelled: unknown[] = [];
    const body = new ReadableStream<Uint8Array>({ cancel: (reason) => void cancelled.push(reason) });
    await expect(saveStream(body, root, { signal, onBytes: () => undefined })).rejects.toThrow("EISDIR");
    expect(cancelled).toHaveLength(1);
  });

  test("leaves the old file unchanged where the source breaks off", async () => {
    await writeFile(join(root, "file"), "old");
    await symlink("file", join(root, "link"));
    let pieces = 0;
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        if (pieces === 0) controller.enqueue(Buffer.from("half"));
        else controller.error(new Error("broken off"));
        pieces += 1;
      },
    });
    const saving = saveStream(body, join(root, "link"), { signal, onBytes: () => undefined });
    await expect(saving).rejects.toThrow("broken off");
    expect(await readFile(join(root, "file"), "utf8")).toBe("old");
    expect(await readdir(root)).toEqual(["file", "link"]);
  });
});
