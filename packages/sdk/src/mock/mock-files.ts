import { SandboxError, type FileInfo, type WatchMessage } from "@atoll/protocol";
import { Bell } from "./bell.ts";
import type { ArchiveEntry } from "./mock-archive.ts";

type Kind = WatchMessage["kind"];

interface Entry {
  /** The bytes of a file; absent for a directory. */
  content?: Uint8Array;
  mode: number;
  modifiedAtMs: number;
}

export interface Change {
  cursor: number;
  kind: Kind;
  isDirectory: boolean;
  path: string;
}

/** The files of one sandbox in memory. Paths are absolute; there are no links and no permissions. */
export class MockFiles {
  readonly #entries = new Map<string, Entry>();
  readonly changes: Change[] = [];
  readonly bell = new Bell();

  constructor() {
    for (const path of ["/", "/home", "/home/user", "/tmp"]) this.#entries.set(path, directory());
  }

  /** Replaces all files with a copy of those of `other`. */
  replaceWith(other: MockFiles): void {
    this.#entries.clear();
    this.copyFrom(other);
  }

  copyFrom(other: MockFiles): void {
    for (const [path, entry] of other.#entries) this.#entries.set(path, { ...entry });
  }

  read(path: string): Uint8Array {
    const { content } = this.#get(path, "read");
    if (content === undefined) throw new SandboxError("file_error", `Cannot read ${path}: it is a directory`);
    return content;
  }

  write(path: string, content: Uint8Array, { mode, how }: { mode: string; how: string }): FileInfo {
    const whole = wholePath(path);
    const old = this.#entries.get(whole);
    if (old !== undefined && how === "create")
      throw new SandboxError("already_exists", `Cannot write ${path}: it exists`);
    if (old !== undefined && old.content === undefined) {
      throw new SandboxError("file_error", `Cannot write ${path}: it is a directory`);
    }
    this.#makeParents(whole);
    const joined = how === "append" && old?.content !== undefined ? concat(old.content, content) : content;
    this.#entries.set(whole, {
      content: joined,
      mode: old?.mode ?? Number.parseInt(mode, 8),
      modifiedAtMs: Date.now(),
    });
    if (old === undefined) this.#changed("created", whole, false);
    this.#changed("written", whole, false);
    return this.stat(path);
  }

  stat(path: string): FileInfo {
    const entry = this.#get(path, "look at");
    return infoOf(path, entry);
  }

  list(path: string, depth: number): FileInfo[] {
    const root = this.#get(path, "list");
    if (root.content !== undefined) throw new SandboxError("file_error", `Cannot list ${path}: it is not a directory`);
    return [...this.below(path)]
      .filter(([name]) => name.split("/").length <= depth)
      .map(([name, entry]) => infoOf(name, entry))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  makeDirectory(path: string, { mode, parents }: { mode: string; parents: boolean }): FileInfo {
    const whole = wholePath(path);
    const old = this.#entries.get(whole);
    if (old !== undefined && (!parents || old.content !== undefined)) {
      throw new SandboxError("already_exists", `Cannot make ${path}: it exists`);
    }
    if (parents) this.#makeParents(whole);
    else this.#get(parentOf(whole), "make a directory in");
    if (old === undefined) {
      this.#entries.set(whole, { ...directory(), mode: Number.parseInt(mode, 8) });
      this.#changed("created", whole, true);
    }
    return this.stat(path);
  }

  rename(from: string, to: string, replace: boolean): FileInfo {
    const source = wholePath(from);
    const target = wholePath(to);
    const entry = this.#get(from, "rename");
    if (!replace && this.#entries.has(target)) {
      throw new SandboxError("already_exists", `Cannot rename to ${to}: it exists`);
    }
    const moved = [...this.below(from)];
    for (const [name, below] of moved) {
      this.#entries.delete(`${source}/${name}`);
      this.#entries.set(`${target}/${name}`, below);
    }
    this.#entries.delete(source);
    this.#entries.set(target, entry);
    this.#changed("moved_away", source, entry.content === undefined);
    this.#changed("moved_here", target, entry.content === undefined);
    return this.stat(to);
  }

  remove(path: string, recursive: boolean): void {
    const entry = this.#get(path, "remove");
    const below = [...this.below(path)];
    if (below.length > 0 && !recursive) throw new SandboxError("file_error", `Cannot remove ${path}: it is not empty`);
    for (const [name] of below) this.#entries.delete(`${wholePath(path)}/${name}`);
    this.#entries.delete(wholePath(path));
    this.#changed("removed", wholePath(path), entry.content === undefined);
  }

  /** Yields the entries of an archive of a directory. */
  *entriesBelow(path: string): Generator<ArchiveEntry> {
    if (this.#get(path, "pack").content !== undefined) {
      throw new SandboxError("file_error", `Cannot pack ${path}: it is not a directory`);
    }
    for (const [name, { content, mode, modifiedAtMs }] of this.below(path)) {
      yield { path: name, content, mode, modifiedAtMs };
    }
  }

  /** Writes the entries of an archive below a directory, which is made if it is missing. */
  put(path: string, entries: readonly ArchiveEntry[]): void {
    const root = wholePath(path);
    this.makeDirectory(root, { mode: "755", parents: true });
    for (const { path: name, content, mode } of entries) {
      if (name === "") continue;
      const target = `${root === "/" ? "" : root}/${name}`;
      const octal = mode.toString(8);
      if (content === undefined) this.makeDirectory(target, { mode: octal, parents: true });
      else this.write(target, content, { mode: octal, how: "replace" });
    }
  }

  /** Yields everything below a directory, by relative paths. */
  *below(path: string): Generator<[string, Entry]> {
    const prefix = wholePath(path) === "/" ? "/" : `${wholePath(path)}/`;
    for (const [name, entry] of this.#entries) {
      if (name.startsWith(prefix) && name !== prefix) yield [name.slice(prefix.length), entry];
    }
  }

  #makeParents(path: string): void {
    const parent = parentOf(path);
    if (this.#entries.has(parent)) return;
    this.#makeParents(parent);
    this.#entries.set(parent, directory());
    this.#changed("created", parent, true);
  }

  #get(path: string, action: string): Entry {
    const entry = this.#entries.get(wholePath(path));
    if (entry === undefined) throw new SandboxError("not_found", `Cannot ${action} ${path}: no such file or directory`);
    return entry;
  }

  #changed(kind: Kind, path: string, isDirectory: boolean): void {
    this.changes.push({ cursor: this.changes.length + 1, kind, isDirectory, path });
    this.bell.ring();
  }
}

export function wholePath(path: string): string {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `/home/user/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

function directory(): Entry {
  return { mode: 0o755, modifiedAtMs: Date.now() };
}

function infoOf(name: string, { content, mode, modifiedAtMs }: Entry): FileInfo {
  const type = content === undefined ? "directory" : "file";
  return { name, type, mode, uid: 1000, gid: 1000, sizeBytes: content?.length ?? 0, modifiedAtMs };
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const whole = new Uint8Array(first.length + second.length);
  whole.set(first);
  whole.set(second, first.length);
  return whole;
}
