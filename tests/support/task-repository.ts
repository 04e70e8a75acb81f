import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { run } from "@atoll/host";

const { signal } = new AbortController();
const identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"];

async function git(directory: string, ...args: string[]): Promise<string> {
  const env = { GIT_CONFIG_GLOBAL: "/dev/null", GIT_CONFIG_NOSYSTEM: "1" };
  const result = await run("git", ["-C", directory, ...identity, ...args], { signal, timeoutMs: 60_000, env });
  if (result.exitCode !== 0) throw new Error(`git ${args.join(" ")}: ${result.stderr}`);
  return result.stdout;
}

export interface TaskRepository {
  path: string;
  commit: string;
  /** The diff between the files of the commit and these. */
  patchFor(files: Readonly<Record<string, string>>): Promise<string>;
}

/** Makes a repository with one commit of these files. */
export async function makeTaskRepository(
  path: string,
  files: Readonly<Record<string, string>>,
): Promise<TaskRepository> {
  await mkdir(path, { recursive: true });
  await git(path, "init", "--quiet", "--initial-branch=main");
  await writeFiles(path, files);
  await git(path, "add", "--all");
  await git(path, "commit", "--quiet", "--message", "First");
  const commit = (await git(path, "rev-parse", "HEAD")).trim();
  const patchFor = async (changed: Readonly<Record<string, string>>): Promise<string> => {
    await writeFiles(path, changed);
    await git(path, "add", "--all");
    const patch = await git(path, "diff", "--cached", "HEAD");
    await git(path, "reset", "--quiet", "--hard", "HEAD");
    return patch;
  };
  return { path, commit, patchFor };
}

async function writeFiles(root: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), content);
  }
}
