import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { FolderWatcher } from "../../src/watcher/folder-watcher.ts";

class WatchedFolder implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-watch-"));
  readonly batches: (readonly string[] | "unsure")[] = [];
  watcher: FolderWatcher | undefined;

  async watch(): Promise<void> {
    this.watcher = await FolderWatcher.start(this.path, {
      includesFolder: (name) => name !== "node_modules",
      includesFile: (path) => path.endsWith(".ts"),
      debounceMs: 20,
      onChange: (paths) => this.batches.push(paths === undefined ? "unsure" : [...paths].toSorted()),
      onError: (error) => {
        throw error;
      },
    });
  }

  write(path: string, content = "x"): void {
    writeFileSync(join(this.path, path), content);
  }

  /** All that was reported so far. */
  get seen(): string[] {
    return this.batches.flatMap((batch) => (batch === "unsure" ? ["unsure"] : batch));
  }

  [Symbol.dispose](): void {
    this.watcher?.[Symbol.dispose]();
    rmSync(this.path, { recursive: true, force: true });
  }
}

test("a burst of writes is one change", async () => {
  using folder = new WatchedFolder();
  mkdirSync(join(folder.path, "src"));
  await folder.watch();
  const names = Array.from({ length: 500 }, (_, at) => `src/${at}.ts`);
  for (const name of names) folder.write(name);
  await expect.poll(() => new Set(folder.seen).size).toBe(500);
  expect(folder.batches.length).toBe(1);
});

test("atomic saves are seen every time", async () => {
  using folder = new WatchedFolder();
  folder.write("a.ts");
  await folder.watch();
  for (let save = 1; save <= 20; save += 1) {
    folder.write("a.ts~tmp", String(save));
    renameSync(join(folder.path, "a.ts~tmp"), join(folder.path, "a.ts"));
    await expect.poll(() => folder.batches.length).toBe(save);
  }
  expect(new Set(folder.seen)).toEqual(new Set(["a.ts"]));
});

test("files in directories that are made, moved in or made again are seen", async () => {
  using folder = new WatchedFolder();
  await folder.watch();
  mkdirSync(join(folder.path, "new/deep"), { recursive: true });
  await expect.poll(() => folder.seen).toContain("unsure");
  folder.write("new/deep/a.ts");
  await expect.poll(() => folder.seen).toContain("new/deep/a.ts");
  renameSync(join(folder.path, "new"), join(folder.path, "moved"));
  await expect.poll(() => folder.seen.filter((path) => path === "unsure").length).toBeGreaterThan(1);
  await expect
    .poll(() => {
      folder.write("moved/deep/b.ts");
      return folder.seen;
    })
    .toContain("moved/deep/b.ts");
});

test("what is not included is not reported", async () => {
  using folder = new WatchedFolder();
  mkdirSync(join(folder.path, "node_modules"));
  await folder.watch();
  folder.write("node_modules/a.ts");
  folder.write("notes.txt");
  folder.write("a.ts");
  await expect.poll(() => folder.seen).toEqual(["a.ts"]);
});
