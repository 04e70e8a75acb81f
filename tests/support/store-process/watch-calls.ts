import { promises, type OpenMode, type PathLike } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { dirname } from "node:path";

/** A change that this process has made on disk. The content of a file is in base64. */
export type DiskStep =
  | { kind: "make-directory" | "remove" | "flush"; path: string }
  | { kind: "make-file"; path: string; content: string }
  | { kind: "rename"; path: string; to: string };

type Call = (...input: never[]) => Promise<unknown>;

/** Calls `before` before each call that changes or flushes something on disk, and `after` with the completed step. */
export async function watchCalls(before: () => void, after: (step: DiskStep) => void): Promise<void> {
  const paths = new WeakMap<FileHandle, string>();
  const probe = await promises.open("/dev/null", "r");
  const handles = Object.getPrototypeOf(probe) as FileHandle;
  await probe.close();

  replace(
    handles,
    "sync",
    (sync) =>
      async function flush(this: FileHandle) {
        before();
        await sync.call(this as never);
        after({ kind: "flush", path: paths.get(this) ?? "" });
      },
  );
  replace(promises, "open", (open) => async (path: PathLike, flags?: string | number, mode?: OpenMode) => {
    const makes = flags === "wx";
    if (makes) before();
    const handle = (await open(path as never, flags as never, mode as never)) as FileHandle;
    paths.set(handle, String(path));
    if (makes) after({ kind: "make-file", path: String(path), content: "" });
    return handle;
  });
  replace(promises, "writeFile", (writeFile) => async (path: string, data: Buffer, options: unknown) => {
    before();
    await writeFile(path as never, data as never, options as never);
    after({ kind: "make-file", path, content: data.toString("base64") });
  });
  replace(promises, "mkdir", (mkdir) => async (path: string, options: unknown) => {
    before();
    const first = (await mkdir(path as never, options as never)) as string | undefined;
    for (const made of directoriesBetween(first ?? path, path)) after({ kind: "make-directory", path: made });
    return first;
  });
  replace(promises, "rename", (rename) => async (path: string, to: string) => {
    before();
    await rename(path as never, to as never);
    after({ kind: "rename", path, to });
  });
  for (const name of ["unlink", "rmdir"] as const) {
    replace(promises, name, (remove) => async (path: string) => {
      before();
      await remove(path as never);
      after({ kind: "remove", path });
    });
  }
  syncBuiltinESMExports();
}

function replace(target: object, name: string, wrap: (call: Call) => unknown): void {
  const call = Reflect.get(target, name) as Call;
  Object.defineProperty(target, name, { value: wrap(call), configurable: true, writable: true });
}

function directoriesBetween(first: string, last: string): string[] {
  const all: string[] = [];
  for (let path = last; path.length >= first.length; path = dirname(path)) all.unshift(path);
  return all;
}
