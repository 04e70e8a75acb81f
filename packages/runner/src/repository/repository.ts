import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Cleanup } from "@atoll/host";
import type { RepoSpec } from "../models/sandbox-config.ts";
import { StageFailure } from "../session/stage-context.ts";
import { git, gitChecked, type GitOptions } from "./git.ts";
import { locate, type LocatedCommit } from "./locate.ts";
import type { RepositoryTree } from "./repository-tree.ts";

/** A path that a patch changes, with what it does to it: `A`dded, `D`eleted, or `M`odified. */
export interface ChangedPath {
  status: string;
  path: string;
}

/** What is at a commit: ids of regular files by path, and names by directory. */
interface TreeEntries {
  files: Map<string, string>;
  directories: Map<string, string[]>;
}

/** The limit is above the listing of a repository with half a million files. */
const mostListingBytes = 64 * 1024 * 1024;
const maxFileBytes = 1024 * 1024;

/**
 * One commit of a repository, read on the host. Its files are never laid out here: names, links and sizes are for the
 * sandbox to deal with. All work is done in a git directory of our own that borrows the objects of the source.
 */
export class Repository implements RepositoryTree, AsyncDisposable {
  readonly commit: string;
  readonly #located: LocatedCommit;
  readonly #directory: string;
  readonly #signal: AbortSignal;
  #tree: Promise<TreeEntries> | undefined;

  private constructor(located: LocatedCommit, directory: string, signal: AbortSignal) {
    this.commit = located.commit;
    this.#located = located;
    this.#directory = directory;
    this.#signal = signal;
  }

  /** `scratch` is a directory of the host for files of ours, which are removed when the repository is disposed of. */
  static async open(
    spec: RepoSpec,
    { cacheDirectory, scratch, signal }: { cacheDirectory: string; scratch: string; signal: AbortSignal },
  ): Promise<Repository> {
    const located = await locate(spec, cacheDirectory, signal);
    await using cleanup = new Cleanup();
    const directory = await mkdtemp(join(scratch, "repository-"));
    cleanup.defer(() => rm(directory, { recursive: true, force: true }));
    const repository = new Repository(located, directory, signal);
    await repository.#initialize();
    cleanup.release();
    return repository;
  }

  async read(path: string): Promise<string | undefined> {
    const blob = (await this.#entries()).files.get(path);
    if (blob === undefined) return undefined;
    return this.#git(["cat-file", "blob", blob], `read ${path}`, { maxOutputBytes: maxFileBytes });
  }

  async list(path: string): Promise<string[]> {
    return (await this.#entries()).directories.get(path.replace(/\/+$/, "")) ?? [];
  }

  describe(): Promise<string | undefined> {
    return this.#located.describe(this.#signal);
  }

  /** The paths that a patch changes. Rejects with blame on the environment when it does not fit this commit. */
  async changedPaths(patch: string, name: string): Promise<ChangedPath[]> {
    const index = {
      GIT_INDEX_FILE: join(this.#directory, `index-${createHash("sha256").update(patch).digest("hex")}`),
    };
    await this.#git(["read-tree", this.commit], "read the tree", { env: index });
    const applied = await git(
      ["apply", "--cached", "--whitespace=nowarn", "-"],
      this.#options({ env: index, input: patch }),
    );
    if (applied.exitCode !== 0) {
      throw new StageFailure("environment", `${name} does not apply to ${this.commit}: ${applied.stderr.trim()}`);
    }
    const diff = ["diff-index", "--cached", "--no-renames", "--name-status", "-z", this.commit];
    const fields = (await this.#git(diff, "list changed paths", { env: index })).split("\0");
    return Array.from({ length: Math.floor(fields.length / 2) }, (_, at) => ({
      status: fields[at * 2] ?? "",
      path: fields[at * 2 + 1] ?? "",
    }));
  }

  /**
   * Makes a git directory for the sandbox: one commit with exactly the files of this one, and nothing before or after
   * it. Attributes that would change bytes on checkout are off, and so are hooks.
   */
  async exportTo(target: string): Promise<void> {
    const date = await this.#git(["show", "--no-patch", "--format=%ct +0000", this.commit], "read the commit");
    const who = { NAME: "Atoll", EMAIL: "atoll@localhost", DATE: date.trim() };
    const identity = Object.entries(who).flatMap(([key, value]) =>
      ["AUTHOR", "COMMITTER"].map((role) => [`GIT_${role}_${key}`, value]),
    );
    const commitTree = ["commit-tree", "-m", "The files as they were at the commit", `${this.commit}^{tree}`];
    const id = (await this.#git(commitTree, "make a commit", { env: Object.fromEntries(identity) })).trim();
    const packs = join(target, "objects", "pack");
    await mkdir(packs, { recursive: true });
    await mkdir(join(target, "refs", "heads"), { recursive: true });
    await mkdir(join(target, "info"), { recursive: true });
    const pack = ["pack-objects", "--revs", "--quiet", "--delta-base-offset", join(packs, "pack")];
    await this.#git(pack, "pack the files of the commit", { input: `${id}\n` });
    const files = {
      HEAD: "ref: refs/heads/main\n",
      "refs/heads/main": `${id}\n`,
      config: configFor(id, "bare = false"),
      "info/attributes": "* -text -eol -ident -filter -working-tree-encoding\n",
      "info/exclude": "",
    };
    for (const [path, content] of Object.entries(files)) await writeFile(join(target, path), content);
    if ((await readdir(packs)).length === 0) throw new StageFailure("infrastructure", "Cannot pack the files: no pack");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#directory, { recursive: true, force: true });
  }

  /** Names of all files and directories are read once: they are what recipes look at most. */
  #entries(): Promise<TreeEntries> {
    const options = { maxOutputBytes: mostListingBytes };
    this.#tree ??= this.#git(["ls-tree", "-r", "-t", "-z", this.commit], "list the files", options).then(readEntries);
    return this.#tree;
  }

  /** A git directory of ours, without refs and configuration, that borrows the objects of the source. */
  async #initialize(): Promise<void> {
    const directory = join(this.#directory, "git");
    const { commit, objects } = this.#located;
    await mkdir(join(directory, "objects", "info"), { recursive: true });
    await mkdir(join(directory, "refs"));
    await writeFile(join(directory, "objects", "info", "alternates"), `${quoted(objects)}\n`);
    await writeFile(join(directory, "HEAD"), "ref: refs/heads/main\n");
    await writeFile(join(directory, "config"), configFor(commit, "bare = true"));
  }

  #git(args: readonly string[], purpose: string, options: Partial<GitOptions> = {}): Promise<string> {
    return gitChecked(args, purpose, this.#options(options));
  }

  #options(options: Partial<GitOptions> = {}): GitOptions {
    const env = { GIT_DIR: join(this.#directory, "git"), GIT_LITERAL_PATHSPECS: "1", ...options.env };
    return { maxOutputBytes: 64 * 1024 * 1024, ...options, cwd: this.#directory, env, signal: this.#signal };
  }
}

function readEntries(listing: string): TreeEntries {
  const entries: TreeEntries = { files: new Map(), directories: new Map([["", []]]) };
  for (const line of listing.split("\0")) {
    const [, mode = "", type = "", id = "", path = ""] = /^(\d+) (\w+) ([0-9a-f]+)\t(.*)$/s.exec(line) ?? [];
    if (path === "") continue;
    const slash = path.lastIndexOf("/");
    entries.directories.get(path.slice(0, Math.max(slash, 0)))?.push(path.slice(slash + 1));
    if (type === "tree") entries.directories.set(path, []);
    else if (mode.startsWith("100")) entries.files.set(path, id);
  }
  return entries;
}

/** A path with a newline or a quote is written in the style of C, as git reads it. */
function quoted(path: string): string {
  if (!/["\n\\#]/.test(path)) return path;
  return `"${path.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
}

function configFor(commit: string, more: string): string {
  const isSha256 = commit.length === 64;
  return [
    `[core]\n\trepositoryFormatVersion = ${isSha256 ? 1 : 0}\n\tfileMode = true\n\tautocrlf = false`,
    `\thooksPath = /dev/null\n\tfsmonitor = false\n\tlogAllRefUpdates = false\n\t${more}`,
    "[gc]\n\tauto = 0\n[user]\n\tname = Atoll\n\temail = atoll@localhost",
    isSha256 ? "[extensions]\n\tobjectFormat = sha256\n" : "",
  ].join("\n");
}
