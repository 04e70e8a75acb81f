import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, copyFile, cp, mkdir, open, readFile, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { pollUntil, run } from "@atoll/host";
import { succeeded, runCommand } from "@atoll/runner";
import { makeDataDir } from "./test-root.ts";

const { signal } = new AbortController();

/** A container engine of a test alone, with one image. */
export interface TestContainerEngine extends AsyncDisposable {
  program: "docker" | "podman";
  globalArgs: readonly string[];
  env: Readonly<Record<string, string>>;
  image: string;
  /** Runs the program to its end and returns what it prints. */
  call(args: readonly string[]): Promise<string>;
}

/** Why tests with this program cannot run here; `undefined` when they can. */
export async function engineMissing(program: "docker" | "podman"): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return `a ${program} of its own needs root`;
  const needed = program === "docker" ? ["docker", "dockerd", "runc"] : ["podman", "runc", "catatonit"];
  for (const name of needed) {
    if ((await pathOf(name)) === undefined) return `${name} is not installed`;
  }
  return undefined;
}

/**
 * Starts the daemon, where there is one, on a directory of its own and without touching the host's network. The image
 * has a few programs of this machine; `hasPython`: also Python and git, as tasks need them.
 */
export async function startContainerEngine(
  program: "docker" | "podman",
  { hasPython = false }: { hasPython?: boolean } = {},
): Promise<TestContainerEngine> {
  const directory = await makeDataDir();
  const image = "atoll-contract:1";
  const engine = program === "docker" ? await startDocker(directory) : await preparePodman(directory);
  const call = async (args: readonly string[], input?: AsyncIterable<Uint8Array>): Promise<string> => {
    const { env, globalArgs } = engine;
    const stdin = input === undefined ? {} : { stdin: input };
    const result = await runCommand(
      { argv: [program, ...globalArgs, ...args], env, timeoutMs: 300_000, ...stdin },
      signal,
    );
    if (!succeeded(result.end)) throw new Error(`${program} ${args.join(" ")}: ${result.stderr}`);
    return result.stdout;
  };
  const dispose = async (): Promise<void> => {
    const ids = (await call(["ps", "--all", "--quiet"])).split("\n").filter((id) => id !== "");
    if (ids.length > 0) await call(["rm", "--force", ...ids]);
    await engine.stop();
    await rm(directory, { recursive: true, force: true });
  };
  try {
    const rootfs = await makeRootfs(join(directory, "rootfs"), hasPython);
    const archive = join(directory, "rootfs.tar");
    await run("tar", ["--directory", rootfs, "--create", "--file", archive, "."], { signal, timeoutMs: 60_000 });
    await call(["import", archive, image]);
  } catch (error) {
    await dispose();
    throw error;
  }
  return { program, globalArgs: engine.globalArgs, env: engine.env, image, call, [Symbol.asyncDispose]: dispose };
}

interface StartedEngine {
  globalArgs: readonly string[];
  env: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

async function startDocker(directory: string): Promise<StartedEngine> {
  const socket = `unix://${directory}/docker.sock`;
  const log = await open(join(directory, "dockerd.log"), "w");
  const child = spawn(
    "dockerd",
    [
      ["--data-root", join(directory, "docker"), "--exec-root", join(directory, "exec"), "--host", socket],
      ["--pidfile", join(directory, "docker.pid"), "--containerd-namespace", `atoll-${process.pid}`],
      ["--iptables=false", "--ip6tables=false", "--ip-masq=false", "--ip-forward=false", "--bridge=none"],
    ].flat(),
    { stdio: ["ignore", log.fd, log.fd], detached: true },
  );
  await log.close();
  const globalArgs = ["--host", socket];
  const env = { HOME: directory };
  const isReady = async (): Promise<boolean> => {
    if (child.exitCode !== null) throw new Error(`dockerd: ${await readFile(join(directory, "dockerd.log"), "utf8")}`);
    const { end } = await runCommand({ argv: ["docker", ...globalArgs, "version"], env, timeoutMs: 20_000 }, signal);
    return succeeded(end);
  };
  if (!(await pollUntil(isReady, { deadlineMs: 120_000 }))) throw new Error("dockerd does not answer");
  return { globalArgs, env, stop: () => end(child) };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGTERM");
  await gone;
}

async function preparePodman(directory: string): Promise<StartedEngine> {
  const configuration = join(directory, "containers.conf");
  await writeFile(
    configuration,
    `[containers]
default_ulimits=["nofile=1024:4096","nproc=8192:8192"]
[engine]
cgroup_manager="cgroupfs"
runtime="runc"
events_logger="file"
`,
  );
  return {
    globalArgs: [
      ["--root", join(directory, "podman"), "--runroot", join(directory, "run")],
      ["--tmpdir", join(directory, "tmp")],
    ].flat(),
    env: { HOME: directory, CONTAINERS_CONF: configuration },
    stop: async () => undefined,
  };
}

const programs = `sh cat id touch stat sleep ls ln mkdir mkfifo readlink chmod chown head tail wc seq tr env grep awk
  setsid sed dirname rm true printf test`;

const programsOfTasks = `bash git python3 cp mv xargs patch cut sort uniq tar tee mktemp find basename date uname which
  comm diff expr nproc timeout`;

/** What the programs of tasks look for beside themselves. */
const directoriesOfTasks = ["usr/lib/python3.11", "usr/lib/git-core", "usr/share/git-core"];

/** A root filesystem of a few programs of this machine, with the libraries that they need. */
async function makeRootfs(root: string, hasPython: boolean): Promise<string> {
  for (const directory of ["usr/bin", "usr/local", "etc", "tmp", "proc", "sys", "dev", "home", "opt", "root"]) {
    await mkdir(join(root, directory), { recursive: true });
  }
  await chmod(join(root, "tmp"), 0o1777);
  await symlink("usr/bin", join(root, "bin"));
  await writeFile(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
  await writeFile(join(root, "etc/group"), "root:x:0:\n");
  const names = hasPython ? `${programs} ${programsOfTasks}` : programs;
  for (const name of names.split(/\s+/)) {
    const path = await pathOf(name);
    if (path === undefined) throw new Error(`This machine has no ${name}`);
    const program = await realpath(path);
    await copyFile(program, join(root, "usr/bin", name));
    const { stdout } = await run("ldd", [program], { signal, timeoutMs: 20_000 });
    for (const [library] of stdout.matchAll(/\/\S+/g)) {
      if (!existsSync(library)) continue;
      await mkdir(join(root, dirname(library)), { recursive: true });
      await copyFile(await realpath(library), join(root, library));
    }
  }
  for (const directory of hasPython ? directoriesOfTasks : []) {
    await mkdir(join(root, directory), { recursive: true });
    await cp(join("/", directory), join(root, directory), { recursive: true, verbatimSymlinks: true });
  }
  return root;
}

async function pathOf(name: string): Promise<string | undefined> {
  const { exitCode, stdout } = await run("sh", ["-c", 'command -v -- "$1"', "sh", name], { signal, timeoutMs: 20_000 });
  // What a shell knows by itself has no path.
  return exitCode !== 0 ? undefined : stdout.startsWith("/") ? stdout.trim() : `/usr/bin/${name}`;
}
