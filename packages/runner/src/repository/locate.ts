import { createHash } from "node:crypto";
import { mkdir, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { RepoSpec } from "../models/sandbox-config.ts";
import { StageFailure } from "../session/stage-context.ts";
import { fetching, git, gitChecked } from "./git.ts";

/** A commit and the directory that has its objects. Nothing is copied for it, and nothing is written there. */
export interface LocatedCommit {
  commit: string;
  objects: string;
  /** The nearest tag before the commit and the distance, as `git describe` has it, where tags are known. */
  describe(signal: AbortSignal): Promise<string | undefined>;
}

const fullId = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

/** Finds the commit that a specification means. A URL is fetched into `cacheDirectory`, this one commit only. */
export async function locate(spec: RepoSpec, cacheDirectory: string, signal: AbortSignal): Promise<LocatedCommit> {
  if (spec.url !== undefined) return locateRemote(spec.url, spec.ref, cacheDirectory, signal);
  if (spec.path !== undefined) return locateLocal(resolve(spec.path), spec.ref, signal);
  return locateLocal(await findClone(spec), spec.ref, signal);
}

async function findClone({ mirror = "", name }: RepoSpec): Promise<string> {
  if (name === undefined || !/^[^/]+\/[^/]+$/.test(name)) {
    throw new StageFailure(
      "infrastructure",
      "Cannot find the clone: a mirror folder needs the repository's owner/name",
    );
  }
  const flat = name.replace("/", "__");
  const candidates = [`${flat}.git`, flat, name, `${name}.git`].map((path) => join(resolve(mirror), path));
  for (const path of candidates) {
    if (await stat(path).catch(() => undefined)) return path;
  }
  throw new StageFailure(
    "infrastructure",
    `Cannot find a clone of ${name} in ${mirror}. Make one: git clone --bare <url> ${join(mirror, `${flat}.git`)}`,
  );
}

async function locateLocal(path: string, ref: string, signal: AbortSignal): Promise<LocatedCommit> {
  if (!(await stat(path).catch(() => undefined))?.isDirectory()) {
    throw new StageFailure("infrastructure", `Cannot read the repository ${path}: there is no such directory`);
  }
  const directories = ["rev-parse", "--path-format=absolute", "--git-path", "objects", "--git-dir"];
  for (const name of [ref, `refs/remotes/origin/${ref}`]) {
    const args = [...directories, "--verify", "--end-of-options", `${name}^{commit}`];
    const { exitCode, stdout } = await git(args, { signal, cwd: path });
    const [objects = "", gitDirectory = "", commit = ""] = stdout.trimEnd().split("\n");
    if (exitCode === 0 && fullId.test(commit)) return { commit, objects, describe: describeIn(gitDirectory, commit) };
  }
  await gitChecked(["rev-parse", "--git-dir"], `read the repository ${path}`, { signal, cwd: path });
  throw new StageFailure(
    "infrastructure",
    `Cannot find ${ref} in ${path}. If it is not an error in the name, fetch it: git -C ${path} fetch origin ${ref}`,
  );
}

const describeIn =
  (gitDirectory: string, commit: string) =>
  async (signal: AbortSignal): Promise<string | undefined> => {
    const found = await git(["--git-dir", gitDirectory, "describe", "--tags", "--long", commit], { signal });
    return found.exitCode === 0 ? found.stdout.trim() : undefined;
  };

async function locateRemote(
  url: string,
  ref: string,
  cacheDirectory: string,
  signal: AbortSignal,
): Promise<LocatedCommit> {
  const commit = fullId.test(ref) ? ref : await resolveRemoteRef(url, ref, signal);
  const id = createHash("sha256").update(url).digest("hex").slice(0, 40);
  const directory = join(cacheDirectory, "repositories", `${id}.git`);
  await mkdir(directory, { recursive: true });
  const format = commit.length === 64 ? "sha256" : "sha1";
  const init = ["init", "--quiet", "--bare", "--template=", `--object-format=${format}`, directory];
  await gitChecked(init, `make ${directory}`, { signal });
  const located = { commit, objects: join(directory, "objects"), describe: () => Promise.resolve(undefined) };
  const has = await git(["--git-dir", directory, "cat-file", "-e", `${commit}^{commit}`], { signal });
  if (has.exitCode === 0) return located;
  const fetch = ["--git-dir", directory, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--depth=1"];
  const network = { signal, env: fetching };
  const one = await git([...fetch, "--", url, commit], network);
  if (one.exitCode !== 0) {
    // Some servers give only commits that a branch or a tag names.
    const all = ["--git-dir", directory, "fetch", "--quiet", "--", url, "+refs/*:refs/fetched/*"];
    await gitChecked(all, `fetch ${ref} from ${url}`, network);
  }
  return located;
}

async function resolveRemoteRef(url: string, ref: string, signal: AbortSignal): Promise<string> {
  const listed = await gitChecked(["ls-remote", "--", url], `list the refs of ${url}`, {
    signal,
    env: fetching,
    maxOutputBytes: 64 * 1024 * 1024,
  });
  const ids = new Map(
    listed.split("\n").map((line) => [line.slice(line.indexOf("\t") + 1), line.split("\t")[0] ?? ""]),
  );
  for (const name of [`refs/tags/${ref}^{}`, `refs/tags/${ref}`, `refs/heads/${ref}`, ref]) {
    const id = ids.get(name);
    if (id !== undefined) return id;
  }
  throw new StageFailure(
    "infrastructure",
    `Cannot find ${ref} at ${url}: give the name of a branch, a tag, or a commit`,
  );
}
