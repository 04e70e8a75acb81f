import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasErrno, pollUntil, run, startHostProcess } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type {
  ListedSandbox,
  OutputSink,
  RunnerSandbox,
  SandboxClient,
  SnapshotStore,
  StartOptions,
} from "../../src/client/sandbox-client.ts";
import type { CommandEnd, CommandSpec } from "../../src/models/command.ts";

/**
 * Sees the machine's files under an overlay of its own, with a `/tmp` of its own, from a mount and a process namespace
 * that end with the command. `$1` is the directory of the sandbox.
 */
const enter = `set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mkdir -p "$1/root/tmp" && mount --bind "$1/tmp" "$1/root/tmp"
mount --rbind /dev "$1/root/dev"
`;

const runInside = `${enter}
mount -t proc proc "$1/root/proc"
cwd=$2; root=$1/root; shift 2
exec chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$cwd" "$@"`;

const copyInside = `${enter}
[ -e "$2" ] || exit 44
mkdir -p "$(dirname "$3")" && cp -a --remove-destination -T -- "$2" "$3"`;

const copyTimeoutMs = 120_000;

async function unshare(script: string, args: readonly string[], signal: AbortSignal): Promise<number | null> {
  const { exitCode, stderr } = await run("unshare", ["--mount", "sh", "-c", script, "sh", ...args], {
    signal,
    timeoutMs: copyTimeoutMs,
  });
  if (exitCode !== 0 && exitCode !== 44) throw new Error(stderr);
  return exitCode;
}

export interface LocalClientOptions {
  /** `false`: a client that cannot save files. */
  hasSnapshots?: boolean;
  /** Called before each command of a sandbox. What it throws is thrown by `exec`. */
  onExec?: (command: CommandSpec) => Promise<void> | void;
  onStart?: (options: StartOptions) => Promise<void> | void;
}

/** Sandboxes of processes on this machine, for tests of the session: a filesystem and no boundary. Needs root. */
export class LocalClient implements SandboxClient {
  readonly kind = "atoll";
  readonly snapshots?: SnapshotStore;
  readonly #directory: string;
  readonly #options: LocalClientOptions;

  /** Sandboxes and snapshots are below `directory`, where a later client finds them. */
  constructor(directory: string, options: LocalClientOptions = {}) {
    this.#directory = directory;
    this.#options = options;
    if (options.hasSnapshots !== false) this.snapshots = new LocalSnapshots(join(directory, "snapshots"));
  }

  async start(options: StartOptions): Promise<RunnerSandbox> {
    const { config, labels, name, snapshot, signal } = options;
    signal.throwIfAborted();
    await this.#options.onStart?.(options);
    const parent = join(this.#directory, "sandboxes");
    await mkdir(parent, { recursive: true });
    const directory = await mkdtemp(join(parent, `${name}-`));
    for (const part of ["work", "root", "tmp"]) await mkdir(join(directory, part));
    const saved = snapshot === undefined ? undefined : join(this.#directory, "snapshots", snapshot);
    if (saved === undefined) await mkdir(join(directory, "upper"));
    else await copyTree(saved, join(directory, "upper"), snapshot ?? "");
    await mkdir(join(directory, "upper", config.workdir), { recursive: true });
    await writeFile(join(directory, "labels.json"), JSON.stringify(labels));
    return new LocalSandbox(this.#directory, directory, config.workdir, this.#options, config.env);
  }

  async list(labels: Readonly<Record<string, string>>): Promise<ListedSandbox[]> {
    const parent = join(this.#directory, "sandboxes");
    const found: ListedSandbox[] = [];
    for (const id of await namesIn(parent)) {
      const text = await readFile(join(parent, id, "labels.json"), "utf8").catch(() => "{}");
      const own = JSON.parse(text) as Record<string, string>;
      if (Object.entries(labels).every(([name, value]) => own[name] === value)) found.push({ id, labels: own });
    }
    return found;
  }

  async remove(id: string): Promise<void> {
    await removeSandbox(join(this.#directory, "sandboxes", id));
  }

  baseDigest(): Promise<string> {
    return Promise.resolve("local");
  }

  async [Symbol.asyncDispose](): Promise<void> {}
}

class LocalSnapshots implements SnapshotStore {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  async has(name: string): Promise<boolean> {
    return (await namesIn(this.#directory)).includes(name);
  }

  async list(): Promise<{ name: string; bytes: number; createdAtMs: number }[]> {
    const names = await namesIn(this.#directory);
    return Promise.all(
      names.map(async (name) => ({ name, bytes: 1, createdAtMs: (await stat(join(this.#directory, name))).mtimeMs })),
    );
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.#directory, name), { recursive: true, force: true });
  }
}

class LocalSandbox implements RunnerSandbox {
  readonly id: string;
  readonly snapshot?: (name: string, signal: AbortSignal) => Promise<void>;
  readonly #directory: string;
  readonly #workdir: string;
  readonly #options: LocalClientOptions;
  readonly #env: Readonly<Record<string, string>>;

  constructor(
    parent: string,
    directory: string,
    workdir: string,
    options: LocalClientOptions,
    env: Readonly<Record<string, string>>,
  ) {
    this.#directory = directory;
    this.#workdir = workdir;
    this.#options = options;
    this.#env = env;
    this.id = directory.slice(directory.lastIndexOf("/") + 1);
    if (options.hasSnapshots === false) return;
    this.snapshot = async (name) => {
      const target = join(parent, "snapshots", name);
      if (await stat(target).catch(() => undefined)) throw new SandboxError("already_exists", `There is ${name}`);
      await mkdir(join(parent, "snapshots"), { recursive: true });
      await copyTree(join(directory, "upper"), target, name);
    };
  }

  async exec(command: CommandSpec, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const { argv, cwd = this.#workdir, env, stdin, timeoutMs } = command;
    signal.throwIfAborted();
    await this.#options.onExec?.(command);
    const namespaces = ["--mount", "--pid", "--fork", "--kill-child=SIGKILL"];
    const inside = ["sh", "-c", runInside, "sh", this.#directory, cwd, ...argv];
    const child = await startHostProcess("unshare", [...namespaces, ...inside], {
      signal,
      timeoutMs,
      graceMs: 0,
      env: { HOME: "/root", ...this.#env, ...env },
      stdin: stdin === undefined ? "ignore" : "pipe",
    });
    await writeFile(join(this.#directory, "pid"), String(child.pid));
    const input = stdin === undefined ? undefined : child.writeStdin(stdin).then(() => child.closeStdin());
    const output = (async () => {
      for await (const { stream, data } of child) await sink.write(stream, data);
    })();
    const [exit] = await Promise.all([child.wait(), output, input?.catch(() => undefined)]);
    await rm(join(this.#directory, "pid"), { force: true });
    if (child.endReason === "abort") throw signal.reason;
    if (child.endReason === "timeout") return { kind: "timeout", limitMs: timeoutMs, reason: "total" };
    if (exit.signal !== null) return { kind: "signal", signal: exit.signal };
    return { kind: "exit", code: exit.exitCode ?? 0 };
  }

  async copyIn(hostPath: string, path: string, signal: AbortSignal): Promise<void> {
    await unshare(copyInside, [this.#directory, hostPath, join(this.#directory, "root", path)], signal);
  }

  async copyOut(path: string, hostPath: string, signal: AbortSignal): Promise<void> {
    const code = await unshare(copyInside, [this.#directory, join(this.#directory, "root", path), hostPath], signal);
    if (code === 44) throw new SandboxError("not_found", `There is no ${path}`);
  }

  async stop(): Promise<void> {
    await endProcess(this.#directory);
  }

  async remove(): Promise<void> {
    await removeSandbox(this.#directory);
  }
}

async function copyTree(from: string, to: string, name: string): Promise<void> {
  if (!(await stat(from).catch(() => undefined))) throw new SandboxError("not_found", `There is no snapshot ${name}`);
  // Whiteouts of the overlay are device files, which this keeps.
  const partial = `${to}.new`;
  await run("cp", ["-a", "-T", from, partial], {
    signal: AbortSignal.timeout(copyTimeoutMs),
    timeoutMs: copyTimeoutMs,
  });
  await run("mv", ["-T", partial, to], { signal: AbortSignal.timeout(copyTimeoutMs), timeoutMs: copyTimeoutMs });
}

async function removeSandbox(directory: string): Promise<void> {
  await endProcess(directory);
  await rm(directory, { recursive: true, force: true });
}

/** Ends the command that runs, also one of a process that has died. */
async function endProcess(directory: string): Promise<void> {
  const text = await readFile(join(directory, "pid"), "utf8").catch(() => "");
  const pid = Number(text);
  if (!Number.isSafeInteger(pid) || pid < 2) return;
  const gone = (): boolean => {
    try {
      process.kill(-pid, "SIGKILL");
      return false;
    } catch (error) {
      return hasErrno(error, "ESRCH");
    }
  };
  await pollUntil(gone, { deadlineMs: 10_000 });
}

async function namesIn(directory: string): Promise<string[]> {
  try {
    return (await readdir(directory)).filter((name) => !name.endsWith(".new"));
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return [];
    throw error;
  }
}
