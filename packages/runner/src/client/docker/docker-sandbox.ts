import { realpath, stat } from "node:fs/promises";
import { constants } from "node:os";
import { posix } from "node:path";
import { deadlineAfter, SandboxError } from "@atoll/protocol";
import { succeeded, type CommandEnd, type CommandSpec } from "../../models/command.ts";
import type { SandboxConfig } from "../../models/sandbox-config.ts";
import { packHostDirectory } from "../host-tar.ts";
import type { OutputSink, RunnerSandbox } from "../sandbox-client.ts";
import { saveOnly } from "../save-copy.ts";
import type { ContainerEngine } from "./container-engine.ts";
import { imageOf } from "./docker-snapshots.ts";

/** The number of `user` in every image, whatever name that image has for it. */
const userId = 1000;
const users = { user: `${userId}:${userId}`, root: "0:0" } as const;

const housekeepingTimeoutMs = 60_000;
const killTimeoutMs = 30_000;
const mostMessageBytes = 4 * 1024;

/** Makes the directory and those above it. What is new belongs to the user. */
const makeDirectory = `
top=; at=$1
while ! [ -e "$at" ]; do top=$at; at=$(dirname "$at"); done
mkdir -p "$1" && if [ -n "$top" ]; then chown -R ${users.user} "$top"; fi`;

const prepare = `
grep -q '^[^:]*:[^:]*:${userId}:' /etc/passwd || echo 'user:x:${userId}:${userId}::/home/user:/bin/sh' >>/etc/passwd
grep -q '^[^:]*:[^:]*:${userId}:' /etc/group || echo 'user:x:${userId}:' >>/etc/group
mkdir -p /home/user "$1" && chown ${users.user} /home/user "$1"`;

/** The counter of processes that the kernel has killed for memory, in either version of cgroups. */
const readKills = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null; true";

interface Quiet {
  end: CommandEnd;
  text: string;
}

/** A container. A command that has to end early takes everything else that runs in the container with it. */
export class DockerSandbox implements RunnerSandbox {
  readonly id: string;
  readonly #engine: ContainerEngine;
  readonly #config: SandboxConfig;
  #kills = 0;

  constructor(engine: ContainerEngine, id: string, config: SandboxConfig) {
    this.#engine = engine;
    this.id = id;
    this.#config = config;
  }

  async exec(command: CommandSpec, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const { argv, cwd = this.#config.workdir, user = "user", ...more } = command;
    let said = "";
    const listening: OutputSink = {
      write: (stream, data) => {
        if (said.length < mostMessageBytes) said += Buffer.from(data).toString("utf8");
        return sink.write(stream, data);
      },
    };
    const kill = () => this.#restart();
    const end = await this.#engine.exec(this.id, { argv, cwd, user: users[user], ...more, kill }, listening, signal);
    if (end.kind !== "exit" || end.code === 0) return end;
    return this.#explain(end.code, said, { argv, cwd, user: users[user] }, signal);
  }

  async copyIn(hostPath: string, path: string, signal: AbortSignal): Promise<void> {
    if ((await stat(hostPath)).isDirectory()) {
      await this.#asRoot(`make ${path}`, ["sh", "-c", makeDirectory, "sh", path], signal);
      const archive = packHostDirectory(hostPath, { signal, uid: userId });
      await this.#engine.copyArchive(archive, this.id, path, signal);
    } else {
      await this.#asRoot(`make ${path}`, ["sh", "-c", makeDirectory, "sh", posix.dirname(path)], signal);
      await this.#engine.copyFile(await realpath(hostPath), this.id, path, signal);
      await this.#asRoot(`give ${path} to its user`, ["chown", users.user, path], signal);
    }
  }

  async copyOut(path: string, hostPath: string, signal: AbortSignal): Promise<void> {
    await saveOnly(this.#engine.copyOut(this.id, path, signal), hostPath, { signal, path });
  }

  async snapshot(name: string, signal: AbortSignal): Promise<void> {
    await this.#engine.commit(this.id, imageOf(name), signal);
  }

  async stop(signal: AbortSignal): Promise<void> {
    await this.#engine.kill(this.id, signal);
  }

  async remove(signal: AbortSignal): Promise<void> {
    await this.#engine.remove(this.id, signal);
  }

  /** Makes the user, where the image has none, and the work directory. */
  async prepare(signal: AbortSignal): Promise<void> {
    await this.#asRoot("prepare a container", ["sh", "-c", prepare, "sh", this.#config.workdir], signal);
  }

  /** The namespace of the container's processes ends, and so no process of it can stay. Its files do. */
  async #restart(): Promise<void> {
    const signal = deadlineAfter(killTimeoutMs);
    await this.#engine.kill(this.id, signal);
    await this.#engine.start(this.id, signal);
    // A new memory cgroup counts from the start.
    this.#kills = 0;
  }

  /** What a code other than 0 stands for: the engine uses codes of its own. */
  async #explain(
    code: number,
    said: string,
    command: { argv: readonly string[]; cwd: string; user: string },
    signal: AbortSignal,
  ): Promise<CommandEnd> {
    const { end, text } = await this.#quietly(["sh", "-c", readKills], users.root, "/", signal);
    if (!succeeded(end)) {
      const state = await this.#engine.inspect(this.id, signal).catch(() => undefined);
      if (state?.isOutOfMemory === true) return { kind: "oom" };
      if (state?.isRunning !== true) return { kind: "lost", reason: said.trim() || "the container does not run" };
    }
    const kills = Math.max(0, ...[...text.matchAll(/^oom_kill (\d+)$/gm)].map(([, count]) => Number(count)));
    const hasMore = kills > this.#kills;
    this.#kills = kills;
    if (hasMore) return { kind: "oom" };
    if ([125, 126, 127].includes(code) && (await this.#isMissing(command, signal))) {
      return { kind: "lost", reason: `Cannot start ${command.argv[0]}: ${said.trim().split("\n").at(-1) ?? ""}` };
    }
    const name = code > 128 ? nameOfSignal(code - 128) : undefined;
    return name === undefined ? { kind: "exit", code } : { kind: "signal", signal: name };
  }

  /** Checks inside the container, because a command can print what the engine prints, and exit with the same code. */
  async #isMissing(
    { argv, cwd, user }: { argv: readonly string[]; cwd: string; user: string },
    signal: AbortSignal,
  ): Promise<boolean> {
    const [program = ""] = argv;
    const look = 'cd "$1" && command -v -- "$2"';
    const { end } = await this.#quietly(["sh", "-c", look, "sh", cwd, program], user, "/", signal);
    return !succeeded(end);
  }

  async #asRoot(what: string, argv: readonly string[], signal: AbortSignal): Promise<void> {
    const { end, text } = await this.#quietly(argv, users.root, "/", signal);
    if (succeeded(end)) return;
    throw new SandboxError("start_failed", `Cannot ${what}: ${text.trim() || "the container does not do it"}`, {
      suggestion: "An image needs sh, grep, mkdir, chown, dirname and sleep.",
    });
  }

  async #quietly(argv: readonly string[], user: string, cwd: string, signal: AbortSignal): Promise<Quiet> {
    let text = "";
    const sink: OutputSink = {
      write: (_stream, data) => {
        if (text.length < mostMessageBytes) text += Buffer.from(data).toString("utf8");
      },
    };
    const kill = async () => undefined;
    const command = { argv, user, cwd, timeoutMs: housekeepingTimeoutMs, kill };
    return { end: await this.#engine.exec(this.id, command, sink, signal), text };
  }
}

function nameOfSignal(number: number): string | undefined {
  return Object.entries(constants.signals).find(([, value]) => value === number)?.[0];
}
