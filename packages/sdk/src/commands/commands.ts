import type { CommandInfo, RunCommandInput, SandboxId, SignalName } from "@atoll/protocol";
import { CommandExitError } from "../errors.ts";
import type { ByteSource } from "../http/exchange.ts";
import { randomKey } from "../http/random-key.ts";
import { CommandHandle, type FollowOptions, type Wire } from "./command-handle.ts";
import type { CommandResult } from "./command-result.ts";
import { feed } from "./feed.ts";
import { ForegroundRun } from "./foreground.ts";
import { startCommand } from "./start-command.ts";

type Given = Pick<RunCommandInput, "name" | "cwd" | "env" | "user" | "timeoutMs" | "keepAlive" | "tags" | "logBytes">;

export interface RunOptions extends Given, FollowOptions {
  /** The same as `env`. */
  envs?: Record<string, string> | undefined;
  /** All of the input; or `true`, with `background`, to send it through the handle. */
  stdin?: boolean | ByteSource | AsyncIterable<Uint8Array | string> | undefined;
  /** Whether to resolve with a handle as soon as the command has started. */
  background?: boolean | undefined;
  /** Whether an exit code other than 0 throws `CommandExitError`. */
  check?: boolean | undefined;
  /**
   * Ends the call and those of the callbacks. The command is killed, except for one in the background whose handle was
   * returned already.
   */
  signal?: AbortSignal | undefined;
}

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** The commands of one sandbox: `sandbox.commands`. */
export class Commands {
  readonly #wire: Wire;
  readonly #sandboxId: SandboxId;

  constructor(wire: Wire, sandboxId: SandboxId) {
    this.#wire = wire;
    this.#sandboxId = sandboxId;
  }

  /**
   * Runs a command: a string is a line for the shell, an array is a program with its arguments. Resolves with the
   * result when it has ended, whatever its exit code; with `background` resolves with a handle when it has started.
   *
   * @example
   * const result = await sandbox.commands.run("echo hello; exit 3");
   * console.log(result.exitCode, result.stdout.trim()); // 3 hello
   */
  async run(command: string | readonly string[], options: RunOptions & { background: true }): Promise<CommandHandle>;
  async run(
    command: string | readonly string[],
    options?: RunOptions & { background?: false | undefined },
  ): Promise<CommandResult>;
  async run(command: string | readonly string[], options?: RunOptions): Promise<CommandResult | CommandHandle>;
  async run(command: string | readonly string[], options: RunOptions = {}): Promise<CommandResult | CommandHandle> {
    const body = bodyOf(command, options);
    if (options.background === true) return this.#start(body, options);
    const result = body.stdin === true ? await this.#runWithInput(body, options) : await this.#run(body, options);
    if (options.check === true && result.exitCode !== 0) throw new CommandExitError(result);
    return result;
  }

  /**
   * Lists every command of the sandbox that the server knows, also those that have ended.
   *
   * @example
   * await sandbox.commands.run("sleep 60", { background: true, name: "sleeper" });
   * const commands = await sandbox.commands.list();
   * console.log(commands.some(({ name, state }) => name === "sleeper" && state === "running")); // true
   */
  async list(options: SignalOption = {}): Promise<CommandInfo[]> {
    const params = { id: this.#sandboxId };
    return (await this.#wire.http.call("listCommands", { params, ...options })).commands;
  }

  /**
   * Returns what the server knows about one command.
   *
   * @example
   * const { id } = await sandbox.commands.run("exit 4");
   * console.log((await sandbox.commands.get(id)).exitCode); // 4
   */
  async get(commandId: string, options: SignalOption = {}): Promise<CommandInfo> {
    return this.#wire.http.call("getCommand", { params: { id: this.#sandboxId, commandId }, ...options });
  }

  /**
   * Returns a handle on a command that any client has started, now or days ago. Its output is replayed from byte `from`
   * of the common order and then followed; the signal ends that too.
   *
   * @example
   * const { id } = await sandbox.commands.run("printf 0123456789");
   * const again = await sandbox.commands.connect(id, { from: 4 });
   * console.log((await again.wait()).stdout); // 456789
   */
  async connect(
    commandId: string,
    options: FollowOptions & SignalOption & { from?: number } = {},
  ): Promise<CommandHandle> {
    const { from = 0, signal } = options;
    return new CommandHandle(this.#wire, await this.get(commandId, { signal }), from, options);
  }

  /**
   * Sends a signal to a command and to all processes in its process group.
   *
   * @example
   * const sleeper = await sandbox.commands.run("sleep 60", { background: true });
   * await sandbox.commands.kill(sleeper.id);
   * console.log((await sleeper.wait()).signal); // SIGKILL
   */
  async kill(commandId: string, options: SignalOption & { killSignal?: SignalName } = {}): Promise<CommandInfo> {
    const { killSignal = "SIGKILL", signal } = options;
    const params = { id: this.#sandboxId, commandId };
    return this.#wire.http.call("signalCommand", { params, body: { signal: killSignal }, signal });
  }

  /**
   * Sends input to a command by its id. It arrives once and in one piece, also if other clients write.
   *
   * @example
   * const reader = await sandbox.commands.run("read line; echo got $line", { background: true, stdin: true });
   * await sandbox.commands.sendStdin(reader.id, "this\n");
   * console.log((await reader.wait()).stdout.trim()); // got this
   */
  async sendStdin(commandId: string, input: string | Uint8Array, options: SignalOption = {}): Promise<void> {
    const params = { id: this.#sandboxId, commandId };
    // The server knows by the writer and the offset what it has, so this request can be repeated.
    const call = {
      params,
      query: { offset: 0, writer: randomKey() },
      bytes: input,
      isRepeatable: true,
      timeoutMs: undefined,
    } as const;
    await this.#wire.http.call("writeStdin", { ...call, ...options });
  }

  /**
   * Ends the input of a command by its id.
   *
   * @example
   * const counter = await sandbox.commands.run("wc -c", { background: true, stdin: true });
   * await sandbox.commands.closeStdin(counter.id);
   * console.log((await counter.wait()).stdout.trim()); // 0
   */
  async closeStdin(commandId: string, options: SignalOption = {}): Promise<void> {
    await this.#wire.http.call("closeStdin", { params: { id: this.#sandboxId, commandId }, ...options });
  }

  async #run(body: RunCommandInput, options: RunOptions): Promise<CommandResult> {
    const run = new ForegroundRun(this.#wire, "runCommand", { params: { id: this.#sandboxId }, body }, options);
    return run.result(options.signal);
  }

  async #start(body: RunCommandInput, options: RunOptions): Promise<CommandHandle> {
    const command = await startCommand(this.#wire.http, this.#sandboxId, body, options.signal);
    const handle = new CommandHandle(this.#wire, command, 0, options);
    if (options.stdin !== undefined && typeof options.stdin !== "boolean") {
      // A caller that waits for the command sees what came of its input.
      feed(handle, options.stdin).catch(() => undefined);
    }
    return handle;
  }

  async #runWithInput(body: RunCommandInput, options: RunOptions): Promise<CommandResult> {
    const handle = await this.#start(body, options);
    // No client has the handle, so no other call could ever end the input.
    if (options.stdin === true) handle.closeStdin().catch(() => undefined);
    try {
      return await handle.wait({ signal: options.signal });
    } catch (error) {
      handle.kill().catch(() => undefined);
      throw error;
    }
  }
}

function bodyOf(command: string | readonly string[], options: RunOptions): RunCommandInput {
  const { name, cwd, env, envs, user, timeoutMs, keepAlive, tags, logBytes, stdin } = options;
  return {
    ...(typeof command === "string" ? { shell: command } : { argv: [...command] }),
    name,
    cwd,
    env: env === undefined && envs === undefined ? undefined : { ...envs, ...env },
    user,
    timeoutMs,
    keepAlive,
    tags,
    logBytes,
    stdin: stdin !== undefined && stdin !== false,
  };
}
