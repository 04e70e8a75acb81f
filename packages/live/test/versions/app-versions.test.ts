import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { compileModule } from "../../src/compiler/compile-module.ts";
import { AppVersions, type Modules } from "../../src/versions/app-versions.ts";
import { VersionStore } from "../../src/versions/version-store.ts";

class TestStore implements Disposable {
  readonly path = mkdtempSync(join(tmpdir(), "atoll-versions-"));
  readonly errors: unknown[] = [];

  open(): Promise<AppVersions> {
    return AppVersions.open(new VersionStore(this.path, "app", "/app"), (error) => this.errors.push(error));
  }

  objects(): string[] {
    const [app = ""] = readdirSync(this.path);
    return readdirSync(join(this.path, app, "objects")).map((name) => join(this.path, app, "objects", name));
  }

  [Symbol.dispose](): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

function modulesOf(sources: Readonly<Record<string, string>>): Modules {
  return new Map(
    Object.entries(sources).flatMap(([module, source]) => {
      const { artifact } = compileModule(module, source);
      return artifact === undefined ? [] : [[module, artifact] as const];
    }),
  );
}

const app = (n: number) => modulesOf({ "a.ts": `export const a = ${n};`, "b.ts": `export const b = 0;` });

test("the same code has the same numbers, and what was used last is current", async () => {
  using store = new TestStore();
  const versions = await store.open();
  expect([versions.use(app(1), "start"), versions.use(app(2), "watch"), versions.use(app(3), "request")]).toEqual([
    1, 2, 3,
  ]);
  expect(versions.currentVersion("a.ts")).toBe(3);
  expect(versions.currentVersion("b.ts")).toBe(1);
  expect(versions.use(app(1), "rollback")).toBe(1);
  expect(versions.currentVersion("a.ts")).toBe(1);
  expect(versions.numberOf(app(2))).toBe(2);
  expect(versions.numberOf(app(4))).toBe(4);
  expect(versions.list().map(({ number, isCurrent, changed }) => [number, isCurrent, changed])).toEqual([
    [3, false, ["a.ts"]],
    [2, false, ["a.ts"]],
    [1, true, ["a.ts", "b.ts"]],
  ]);
});

test("versions survive a restart, and their code can be read again", async () => {
  using store = new TestStore();
  const first = await store.open();
  for (const n of [1, 2, 3]) first.use(app(n), "watch");
  first.settle(2);
  first.leave(3, "it crashed", 2);
  await first.flush();
  const later = await store.open();
  expect([later.current, later.lastGood]).toEqual([2, 2]);
  expect(later.list()[0]).toMatchObject({ number: 3, isGood: false, failure: "it crashed" });
  expect(await later.modulesOf(1)).toEqual(app(1));
  expect(later.use(app(4), "start")).toBe(4);
  expect(later.history("a.ts")).toMatchObject({ current: 4, versions: [{ number: 4 }, {}, {}, { number: 1 }] });
  await later.remove();
  expect((await store.open()).current).toBe(0);
});

test("ten generations are kept, with the last good one, and no file of others", async () => {
  using store = new TestStore();
  const versions = await store.open();
  versions.use(app(1), "start");
  versions.settle(1);
  for (let n = 2; n <= 40; n += 1) versions.use(app(n), "watch");
  await versions.flush();
  const kept = versions.list().map(({ number }) => number);
  expect(kept).toEqual([40, 39, 38, 37, 36, 35, 34, 33, 32, 1]);
  for (const number of kept) expect(await versions.modulesOf(number)).toEqual(app(number));
  expect(versions.history("a.ts").versions.map(({ number }) => number)).toEqual(kept);
  expect(store.objects()).toHaveLength(11);
  await expect(versions.modulesOf(2)).rejects.toMatchObject({
    code: "not_found",
    suggestion: expect.stringContaining("40"),
  });
});

test("a diff shows what changed in each module", async () => {
  using store = new TestStore();
  const versions = await store.open();
  versions.use(app(1), "start");
  versions.use(modulesOf({ "a.ts": "export const a = 2;", "c.ts": "export const c = 1;" }), "watch");
  expect(await versions.diff(1, 2)).toEqual([
    { module: "a.ts", from: 1, to: 2, patch: "@@ -1,1 +1,1 @@\n-export const a = 1;\n+export const a = 2;" },
    { module: "b.ts", from: 1, to: undefined, patch: "@@ -1,1 +0,0 @@\n-export const b = 0;" },
    { module: "c.ts", from: undefined, to: 1, patch: "@@ -0,0 +1,1 @@\n+export const c = 1;" },
  ]);
  expect(await versions.moduleDiff("a.ts", 2, 1)).toMatchObject({
    patch: expect.stringContaining("+export const a = 1;"),
  });
  await expect(versions.diff(1, 9)).rejects.toMatchObject({ code: "not_found" });
});

test("a comment makes no new version, and the newer source is kept", async () => {
  using store = new TestStore();
  const versions = await store.open();
  versions.use(modulesOf({ "a.ts": "export const a = 1;" }), "start");
  const commented = modulesOf({ "a.ts": "type T = string;\nexport const a = 1;" });
  expect(versions.use(commented, "watch")).toBe(1);
  await versions.flush();
  expect(await (await store.open()).modulesOf(1)).toEqual(commented);
  expect(store.objects()).toHaveLength(1);
});

test("damaged code is refused", async () => {
  using store = new TestStore();
  const versions = await store.open();
  versions.use(app(1), "start");
  await versions.flush();
  for (const path of store.objects()) writeFileSync(path, "{}");
  await expect(versions.modulesOf(1)).rejects.toMatchObject({ code: "file_error" });
});

test("an app goes on when its versions cannot be stored", async () => {
  using store = new TestStore();
  writeFileSync(join(store.path, "file"), "");
  const versions = await AppVersions.open(new VersionStore(join(store.path, "file"), "app", "/app"), (error) =>
    store.errors.push(error),
  );
  versions.use(app(1), "start");
  await versions.flush();
  expect(store.errors).toHaveLength(1);
  expect(await versions.modulesOf(1)).toEqual(app(1));
});

test("nothing is stored after the removal has begun", async () => {
  using store = new TestStore();
  const versions = await store.open();
  versions.use(app(1), "start");
  await versions.flush();
  const removed = versions.remove();
  versions.use(app(2), "watch");
  await removed;
  await versions.flush();
  expect([readdirSync(store.path), store.errors]).toEqual([[], []]);
});
