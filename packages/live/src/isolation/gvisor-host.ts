import { realpath } from "node:fs/promises";
import { join } from "node:path";
import { messageOf, pack } from "@atoll/host";
import { deadlineAfter } from "@atoll/protocol";
import { Atoll, Sandbox, type CommandHandle, type ConnectionOptions } from "@atoll/sdk";
import { appFiles, includesOnly } from "./app-files.ts";
import type { AppHost, AppProcess, LaunchOptions } from "./app-host.ts";
import { GvisorApp } from "./gvisor-app.ts";
import { nodeFlags } from "./node-flags.ts";

const MiB = 1024 * 1024;
/** The part of the memory of a sandbox that the sandbox itself needs. */
const ownMemoryBytes = 64 * MiB;
/** Node alone has about a dozen threads, and the sandbox has processes of its own. */
const ownProcesses = 24;
/** A sandbox whose manager has died gets no requests, and ends after this time. */
const idleMs = 5 * 60_000;
/** The server keeps this much of what the app wrote for a reader that is behind or away. */
const logBytes = 64 * MiB;
/** Files of the app keep their paths, below this folder. */
const root = "/home/user/app";
/** In the unit that POSIX gives to `ulimit -f`. */
const blockBytes = 512;

export interface GvisorHostOptions extends ConnectionOptions {
  /** Has to have the program `node`. */
  template?: string;
}

/** Runs an app as a command in a sandbox of an Atoll server: with a kernel of its own, and no network. */
export class GvisorHost implements AppHost {
  readonly level = "gvisor";
  readonly #client: Atoll;
  readonly #template: string | undefined;

  constructor({ template, ...connection }: GvisorHostOptions = {}) {
    this.#client = new Atoll(connection);
    this.#template = template;
  }

  async missing(): Promise<string[]> {
    try {
      // A list, unlike a health check, also needs a key.
      await this.#client.sandboxes({ pageSize: 1, signal: deadlineAfter(5_000) }).next();
      return [];
    } catch (error) {
      return [`an Atoll server (start one and set ATOLL_API_URL and ATOLL_API_KEY): ${messageOf(error)}`];
    }
  }

  async enforcement(): Promise<string[]> {
    return ["everything by a kernel of its own (gVisor), and memory, CPU and processes by cgroup"];
  }

  async launch(options: LaunchOptions): Promise<AppProcess> {
    const { id, limits, signal } = options;
    const memoryBytes = limits.memoryBytes + ownMemoryBytes;
    const sandbox = await Sandbox.create({
      client: this.#client,
      ...(this.#template === undefined ? {} : { template: this.#template }),
      driver: "gvisor",
      limits: {
        memoryBytes,
        cpus: Math.max(0.05, limits.cpus),
        processes: limits.processes + ownProcesses,
      },
      labels: { "live-app": id },
      timeouts: { idleMs, onTimeout: "kill" },
      signal,
    });
    try {
      return new GvisorApp(this.#client, sandbox, await this.#start(sandbox, options), memoryBytes);
    } catch (error) {
      await sandbox.kill().catch(() => undefined);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
  }

  async #start(sandbox: Sandbox, { folder, runtime, limits, env, signal }: LaunchOptions): Promise<CommandHandle> {
    const realFolder = await realpath(folder);
    const realRuntime = await realpath(runtime);
    const includes = includesOnly((await appFiles(realFolder)).add(realRuntime));
    const tar = ReadableStream.from(pack("/", { signal, includes, onSkipped: () => undefined }));
    await sandbox.files.mkdir(root, { signal });
    await sandbox.files.upload(tar, root, { signal });
    const limit = 'ulimit -c 0 && ulimit -f "$0" && exec env -i "$@"';
    const variables = Object.entries({ PATH: "/usr/local/bin:/usr/bin:/bin", HOME: "/home/user", ...env });
    return sandbox.commands.run(
      [
        "/bin/sh",
        "-c",
        limit,
        String(Math.ceil(limits.fileBytes / blockBytes)),
        ...variables.map(([name, value]) => `${name}=${value}`),
        "node",
        ...nodeFlags(limits),
        join(root, realRuntime),
        join(root, realFolder),
      ],
      // The app itself is no reason to keep the sandbox: its manager is.
      { background: true, stdin: true, keepAlive: false, cwd: join(root, realFolder), logBytes, signal },
    );
  }
}
