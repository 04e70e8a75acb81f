import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { messageOf } from "@atoll/host";
import { deadlineAfter, isSandboxError } from "@atoll/protocol";
import type { CommandHandle, CommandInfo, OutputEvent, Sandbox } from "@atoll/sdk";
import type { CommandEnd, CommandSpec } from "../../models/command.ts";
import type { SandboxConfig } from "../../models/sandbox-config.ts";
import { streamOf } from "../host-output.ts";
import { packHostDirectory } from "../host-tar.ts";
import type { OutputSink, RunnerSandbox } from "../sandbox-client.ts";
import { notCopied, saveDirectory, saveFile } from "../save-copy.ts";
import { SilenceTimer } from "../silence-timer.ts";
import { endOf } from "./command-end.ts";

const MiB = 1024 * 1024;

/** What the server keeps of an output, for a client that is slow or comes back: more than is stored here. */
const logBytes = 256 * MiB;
const housekeepingTimeoutMs = 60_000;
const killTimeoutMs = 10_000;

/** A sandbox of an Atoll server. */
export class AtollSandbox implements RunnerSandbox {
  readonly id: string;
  readonly #sandbox: Sandbox;
  readonly #config: SandboxConfig;

  constructor(sandbox: Sandbox, config: SandboxConfig) {
    this.id = sandbox.id;
    this.#sandbox = sandbox;
    this.#config = config;
  }

  async exec(command: CommandSpec, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const { argv, cwd = this.#config.workdir, env, user = "user", stdin, timeoutMs, silentTimeoutMs } = command;
    let handle: CommandHandle;
    try {
      handle = await this.#sandbox.commands.run(argv, {
        background: true,
        cwd,
        env: { ...env },
        user,
        stdin: stdin ?? false,
        timeoutMs,
        logBytes,
        signal,
      });
    } catch (error) {
      signal.throwIfAborted();
      return this.#lost(messageOf(error), signal);
    }
    await using silence = new SilenceTimer(silentTimeoutMs, () => kill(handle));
    try {
      const ended = await follow(handle, sink, silence, signal);
      // One that ended by itself at the same moment has its own end.
      if (silence.isOver && ended.signal === "SIGKILL") {
        return { kind: "timeout", limitMs: silentTimeoutMs ?? 0, reason: "silent" };
      }
      const end = endOf(ended, timeoutMs);
      return end.kind === "lost" ? await this.#lost(end.reason, signal) : end;
    } catch (error) {
      await kill(handle);
      signal.throwIfAborted();
      if (isSandboxError(error)) return await this.#lost(error.message, signal);
      throw error;
    }
  }

  async copyIn(hostPath: string, path: string, signal: AbortSignal): Promise<void> {
    const stats = await stat(hostPath);
    const { files } = this.#sandbox;
    if (stats.isDirectory()) {
      const upload = () => files.upload(streamOf(packHostDirectory(hostPath, { signal })), path, { signal });
      try {
        await files.mkdir(path, { signal });
        await upload();
      } catch (error) {
        if (!isSandboxError(error, "permission_denied")) throw error;
        await this.#makeDirectory(path, signal);
        await upload();
      }
    } else {
      const mode = (stats.mode & 0o777).toString(8).padStart(3, "0");
      const write = (user: string) =>
        files.write(path, streamOf(piecesOf(hostPath)), { user, mode, how: "replace", signal });
      try {
        await write("user");
      } catch (error) {
        if (!isSandboxError(error, "permission_denied")) throw error;
        await write("root");
        await this.#asRoot(["chown", "user:", path], signal);
      }
    }
  }

  async copyOut(path: string, hostPath: string, signal: AbortSignal): Promise<void> {
    const { files } = this.#sandbox;
    // What a task left unreadable for others is still its result. The sandbox's kernel resolves the path.
    const user = "root";
    const { type } = await files.stat(path, { user, signal });
    if (type === "directory") {
      await saveDirectory(await files.download(path, { user, signal }), hostPath, { signal, path });
    } else if (type === "file") {
      await saveFile(await files.read(path, { as: "stream", user, signal }), hostPath, { signal, path });
    } else throw notCopied(path, type);
  }

  async snapshot(name: string, signal: AbortSignal): Promise<void> {
    await this.#sandbox.snapshot(name, { signal });
  }

  async stop(signal: AbortSignal): Promise<void> {
    await this.#sandbox.commands.run(["sh", "-c", "kill -KILL -1"], {
      user: "root",
      timeoutMs: housekeepingTimeoutMs,
      signal,
    });
  }

  async remove(signal: AbortSignal): Promise<void> {
    await this.#sandbox.kill({ signal });
  }

  /** The directory in which commands run, for `user` to write in. */
  async makeWorkdir(signal: AbortSignal): Promise<void> {
    await this.#makeDirectory(this.#config.workdir, signal);
  }

  /** The end of a command cannot be known. That of its sandbox can, which is why. */
  async #lost(reason: string, signal: AbortSignal): Promise<CommandEnd> {
    const info = await this.#sandbox.getInfo({ signal }).catch(() => undefined);
    signal.throwIfAborted();
    return info?.reason?.kind === "memory" ? { kind: "oom" } : { kind: "lost", reason };
  }

  async #makeDirectory(path: string, signal: AbortSignal): Promise<void> {
    await this.#asRoot(["sh", "-c", 'mkdir -p -- "$1" && chown user: -- "$1"', "sh", path], signal);
  }

  async #asRoot(argv: readonly string[], signal: AbortSignal): Promise<void> {
    await this.#sandbox.commands.run(argv, {
      cwd: "/",
      user: "root",
      timeoutMs: housekeepingTimeoutMs,
      check: true,
      signal,
    });
  }
}

/** Passes the output on and resolves to what the server knows of the command when it has ended. */
async function follow(
  handle: CommandHandle,
  sink: OutputSink,
  silence: SilenceTimer,
  signal: AbortSignal,
): Promise<CommandInfo> {
  for await (const event of handle.events({ signal })) {
    if (event.type === "ended") return event.command;
    silence.restart();
    await pass(event, sink);
  }
  throw new Error("the events of a command end with its end");
}

async function pass(event: Exclude<OutputEvent, { type: "ended" }>, sink: OutputSink): Promise<void> {
  if (event.type !== "dropped") await sink.write(event.type, event.data);
  else await sink.write("stderr", Buffer.from(`\n[${event.bytes} bytes dropped by the server]\n`));
}

/** Kills the command and everything that it started. A server that does not answer has its own limits. */
async function kill(handle: CommandHandle): Promise<void> {
  await handle.kill("SIGKILL", { signal: deadlineAfter(killTimeoutMs) }).catch(() => undefined);
}

async function* piecesOf(path: string): AsyncGenerator<Uint8Array, void, undefined> {
  yield* createReadStream(path) as AsyncIterable<Uint8Array>;
}
