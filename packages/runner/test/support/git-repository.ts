import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { run } from "@atoll/host";

export type FileContent = string | Uint8Array | { link: string } | { executable: string } | null;
export type Files = Readonly<Record<string, FileContent>>;

const identity = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_AUTHOR_NAME: "a",
  GIT_AUTHOR_EMAIL: "a@example.org",
  GIT_COMMITTER_NAME: "a",
  GIT_COMMITTER_EMAIL: "a@example.org",
};

/** A repository that a test makes. */
export class GitRepository implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async make(files: Files = {}): Promise<GitRepository> {
    const repository = new GitRepository(await mkdtemp(join(tmpdir(), "atoll-runner-test-")));
    await repository.git("init", "--quiet", "--initial-branch=main");
    if (Object.keys(files).length > 0) await repository.commit(files);
    return repository;
  }

  /** Runs git in it and returns its output. */
  async git(...args: string[]): Promise<string> {
    return this.gitWith({}, ...args);
  }

  async gitWith(options: { input?: string; env?: Record<string, string> }, ...args: string[]): Promise<string> {
    const { exitCode, stdout, stderr } = await run("git", args, {
      signal: AbortSignal.timeout(60_000),
      timeoutMs: 60_000,
      cwd: this.path,
      ...(options.input === undefined ? {} : { input: options.input }),
      env: { ...identity, ...options.env },
    });
    if (exitCode !== 0) throw new Error(`git ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  /** Writes the files, removes those that are `null`, and commits: resolves to the id of the commit. */
  async commit(files: Files, message = "A change"): Promise<string> {
    for (const [path, content] of Object.entries(files)) await this.#write(path, content);
    await this.git("add", "--all", "--force");
    await this.git("commit", "--quiet", "--allow-empty", "--message", message);
    return (await this.git("rev-parse", "HEAD")).trim();
  }

  /** The patch that these files would be, from the present commit. The repository is left as it was. */
  async patch(files: Files): Promise<string> {
    for (const [path, content] of Object.entries(files)) await this.#write(path, content);
    await this.git("add", "--all", "--force");
    const patch = await this.git("diff", "--cached", "--binary", "HEAD");
    await this.git("reset", "--quiet", "--hard");
    return patch;
  }

  /** Takes an object away, as a damaged disk does. */
  async removeObject(id: string): Promise<void> {
    await rm(join(this.path, ".git", "objects", id.slice(0, 2), id.slice(2)));
  }

  async #write(path: string, content: FileContent): Promise<void> {
    const target = join(this.path, path);
    await rm(target, { recursive: true, force: true });
    if (content === null) return;
    await mkdir(dirname(target), { recursive: true });
    if (typeof content === "string" || content instanceof Uint8Array) await writeFile(target, content);
    else if ("link" in content) await symlink(content.link, target);
    else await writeFile(target, content.executable, { mode: 0o755 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}
