import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { closeSync, constants, openSync, writeSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { Socket, type ConnectOpts } from "node:net";
import { join } from "node:path";
import { exitCodeOf, hostEnvironment, outputOf } from "./host-command.ts";
import { readLauncherCommand, type LauncherCommand } from "./launcher-command.ts";

export interface UserIds {
  uid: number;
  gid: number;
}

interface OciSpec {
  process: { args: string[]; user: UserIds; cwd: string };
  root: { path: string };
}

/**
 * The rival: `runsc` without Atoll. It gets the same input as a living sandbox of ours: the program and its flags, the
 * trees of the root filesystem, the specification. It runs without our parts: guest, channel, records, cgroups,
 * launcher.
 */
export class RawRunsc {
  readonly user: UserIds;
  #dir: string;
  #command: LauncherCommand;
  #spec: OciSpec;
  #bundles = new Set<RawBundle>();

  constructor(options: { dir: string; command: LauncherCommand; spec: OciSpec; user: UserIds }) {
    this.#dir = options.dir;
    this.#command = options.command;
    this.#spec = options.spec;
    this.user = options.user;
  }

  /** Copies the launch of a living sandbox. Processes run as `user`. */
  static async copyOf(launcherPid: number, options: { dir: string; user: UserIds }): Promise<RawRunsc> {
    const command = await readLauncherCommand(launcherPid);
    const spec = JSON.parse(await readFile(join(command.runDir, "config.json"), "utf8")) as OciSpec;
    return new RawRunsc({ ...options, command, spec });
  }

  get runtime(): readonly string[] {
    return this.#command.runtime;
  }

  /** Prepares a container: its root filesystem is mounted, and nothing runs yet. */
  async prepare(argv: string[]): Promise<RawBundle> {
    const id = `bench-${randomBytes(8).toString("hex")}`;
    const dir = join(this.#dir, id);
    const bundle = new RawBundle({ id, dir, runtime: this.#command.runtime });
    this.#bundles.add(bundle);
    bundle.onRemoved = () => this.#bundles.delete(bundle);
    await bundle.mount(this.#command.overlays);
    await bundle.specify({
      ...this.#spec,
      process: { ...this.#spec.process, args: argv, user: this.user, cwd: "/" },
      root: { ...this.#spec.root, path: bundle.rootfs },
    });
    return bundle;
  }

  /** Ends and removes every container that still exists. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const bundle of this.#bundles) await bundle[Symbol.asyncDispose]();
  }
}

export class RawBundle implements AsyncDisposable {
  readonly id: string;
  readonly rootfs: string;
  onRemoved: () => void = () => undefined;
  #dir: string;
  #runtime: string[];
  #mounts: string[] = [];
  #child: ChildProcess | undefined;

  constructor(options: { id: string; dir: string; runtime: readonly string[] }) {
    this.id = options.id;
    this.#dir = options.dir;
    this.rootfs = join(options.dir, "rootfs");
    this.#runtime = replaceRoot(options.runtime, join(options.dir, "state"));
  }

  /** The pid of `runsc run`, the parent of all other processes. */
  get pid(): number {
    if (this.#child?.pid === undefined) throw new Error(`Container ${this.id} was not started`);
    return this.#child.pid;
  }

  async mount(overlays: LauncherCommand["overlays"]): Promise<void> {
    await mkdir(this.rootfs, { recursive: true });
    for (const [index, { at, options }] of overlays.entries()) {
      const upper = join(this.#dir, `upper-${index}`);
      const work = join(this.#dir, `work-${index}`);
      await Promise.all([mkdir(upper), mkdir(work)]);
      const target = at === "/" ? this.rootfs : `${this.rootfs}${at}`;
      const ownLayers = options
        .replace(/upperdir=[^,]*/, `upperdir=${upper}`)
        .replace(/workdir=[^,]*/, `workdir=${work}`);
      await outputOf("mount", ["-t", "overlay", "overlay", "-o", ownLayers, target]);
      this.#mounts.push(target);
    }
  }

  async specify(spec: OciSpec): Promise<void> {
    await writeFile(join(this.#dir, "config.json"), JSON.stringify(spec));
    await outputOf("mkfifo", [this.#fifo("stdin"), this.#fifo("stdout")]);
  }

  /**
   * Starts the container in the foreground. Its stdout is a real pipe, not the socket that Node would make. With
   * `onChunk` the output is read at once; the chunk is only valid until that function returns.
   */
  start(onChunk?: (chunk: Buffer) => void): Socket {
    return this.#open(["run"], onChunk);
  }

  /** Starts the container in the foreground from what `checkpoint` has saved. */
  restore(): Socket {
    return this.#open(["restore", "--image-path", this.#imageDir]);
  }

  /** Writes to the stdin of the container's process, which never ends. */
  say(text: string): void {
    const fd = openSync(this.#fifo("stdin"), constants.O_RDWR | constants.O_NONBLOCK);
    writeSync(fd, text);
    closeSync(fd);
  }

  /** Runs `runsc checkpoint` to its end. */
  async checkpoint(): Promise<void> {
    await rm(this.#imageDir, { recursive: true, force: true });
    const exitCode = await this.#call("checkpoint", "--image-path", this.#imageDir, this.id);
    if (exitCode !== 0) throw new Error(`runsc checkpoint ended with ${exitCode}: ${await this.stderr()}`);
  }

  /** Deletes the container after a checkpoint. Its files stay for `restore`. */
  async clear(): Promise<void> {
    await this.#call("delete", "--force", this.id);
    await this.exited();
  }

  /** Settles when `runsc run` has ended. */
  async exited(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    await once(child, "exit");
  }

  async stderr(): Promise<string> {
    return readFile(join(this.#dir, "stderr"), "utf8").catch(() => "");
  }

  /** Runs `runsc exec` to its end. */
  async exec(argv: readonly string[], user: UserIds): Promise<void> {
    const exitCode = await this.#call("exec", "--user", `${user.uid}:${user.gid}`, "--cwd", "/", this.id, ...argv);
    if (exitCode !== 0) throw new Error(`runsc exec ${argv.join(" ")} ended with ${exitCode}`);
  }

  /** Ends the container in the documented order: kill, wait for the foreground process, delete. */
  async kill(): Promise<void> {
    await this.#call("kill", this.id, "KILL");
    await this.exited();
    await this.#call("delete", "--force", this.id);
  }

  /** Removes the container, its mounts and its files. A second call does nothing. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child !== undefined) await this.clear();
    for (let target = this.#mounts.pop(); target !== undefined; target = this.#mounts.pop()) {
      // A process that is about to exit may still use the mount, which then goes away with that process.
      if ((await exitCodeOf("umount", [target])) !== 0) await exitCodeOf("umount", ["--lazy", target]);
    }
    await rm(this.#dir, { recursive: true, force: true });
    this.onRemoved();
  }

  #open(words: readonly string[], onChunk?: (chunk: Buffer) => void): Socket {
    const readFd = openSync(this.#fifo("stdout"), constants.O_RDONLY | constants.O_NONBLOCK);
    const writeFd = openSync(this.#fifo("stdout"), constants.O_WRONLY);
    const inputFd = openSync(this.#fifo("stdin"), constants.O_RDWR);
    const errorFd = openSync(join(this.#dir, "stderr"), "a");
    const [program = "", ...flags] = this.#runtime;
    this.#child = spawn(program, [...flags, ...words, "--bundle", this.#dir, this.id], {
      env: hostEnvironment,
      stdio: [inputFd, writeFd, errorFd],
      detached: true,
    });
    for (const fd of [inputFd, writeFd, errorFd]) closeSync(fd);
    return new Socket({ fd: readFd, readable: true, writable: false, ...(onChunk && readingInto(onChunk)) });
  }

  #fifo(name: "stdin" | "stdout"): string {
    return join(this.#dir, name);
  }

  get #imageDir(): string {
    return join(this.#dir, "image");
  }

  #call(...args: string[]): Promise<number> {
    const [program = "", ...flags] = this.#runtime;
    return exitCodeOf(program, [...flags, ...args]);
  }
}

/** Reads as much at once as a pipe holds. */
function readingInto(onChunk: (chunk: Buffer) => void): ConnectOpts {
  const buffer = Buffer.allocUnsafeSlow(64 * 1024);
  const callback = (bytes: number): boolean => {
    onChunk(buffer.subarray(0, bytes));
    return true;
  };
  return { onread: { buffer, callback } };
}

/** Returns the same flags with another state directory. */
function replaceRoot(runtime: readonly string[], state: string): string[] {
  const index = runtime.indexOf("--root");
  if (index < 0) throw new Error(`Cannot copy ${runtime.join(" ")}: it has no --root`);
  return runtime.with(index + 1, state);
}
