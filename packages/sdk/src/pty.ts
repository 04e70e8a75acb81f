import type { RunCommandInput, SandboxId } from "@atoll/protocol";
import { CommandHandle, type Wire } from "./commands/command-handle.ts";
import { Commands } from "./commands/commands.ts";
import { startCommand } from "./commands/start-command.ts";

type Given = Pick<RunCommandInput, "name" | "cwd" | "env" | "user" | "timeoutMs" | "keepAlive" | "tags" | "logBytes">;

export interface PtyOptions extends Given {
  rows?: number | undefined;
  cols?: number | undefined;
  /** What runs in the terminal; a login shell when absent. */
  argv?: readonly string[] | undefined;
  /** Called with the terminal's output, as bytes. */
  onData?: ((data: Uint8Array) => void | Promise<void>) | undefined;
  /**
   * Ends the call, and the calls of `onData`. The terminal is ended too if its handle was not returned yet; otherwise
   * it goes on.
   */
  signal?: AbortSignal | undefined;
}

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** Terminals of one sandbox: `sandbox.pty`. A terminal is a command, so `commands` lists and connects it too. */
export class Ptys {
  readonly #wire: Wire;
  readonly #sandboxId: SandboxId;
  readonly #commands: Commands;

  constructor(wire: Wire, sandboxId: SandboxId) {
    this.#wire = wire;
    this.#commands = new Commands(wire, sandboxId);
    this.#sandboxId = sandboxId;
  }

  /**
   * Opens a terminal. Its output comes from the handle's events, or goes to `onData`.
   *
   * @example
   * const terminal = await sandbox.pty.create({ rows: 24, cols: 80, argv: ["sh", "-c", "read name; echo hi $name"] });
   * await terminal.sendStdin("there\n");
   * console.log((await terminal.wait()).stdout.includes("hi there")); // true
   */
  async create(options: PtyOptions = {}): Promise<CommandHandle> {
    const { rows = 24, cols = 80, argv = ["bash", "-l"], onData, signal, env, ...given } = options;
    const body = {
      ...given,
      argv: [...argv],
      env: { TERM: "xterm-256color", ...env },
      pty: { rows, cols },
      stdin: true,
    };
    const command = await startCommand(this.#wire.http, this.#sandboxId, body, signal);
    const handle = new CommandHandle(this.#wire, command, 0);
    if (onData !== undefined) show(handle, onData, signal).catch(() => undefined);
    return handle;
  }

  /**
   * Types into a terminal by its id.
   *
   * @example
   * const terminal = await sandbox.pty.create({ argv: ["sh", "-c", "read word; echo you said $word"] });
   * await sandbox.pty.sendInput(terminal.id, "yes\n");
   * console.log((await terminal.wait()).stdout.includes("you said yes")); // true
   */
  async sendInput(terminalId: string, input: string | Uint8Array, options: SignalOption = {}): Promise<void> {
    await this.#commands.sendStdin(terminalId, input, options);
  }

  /**
   * Resizes a terminal by its id.
   *
   * @example
   * const terminal = await sandbox.pty.create({ argv: ["sh", "-c", "read go; stty size"] });
   * await sandbox.pty.resize(terminal.id, { rows: 30, cols: 100 });
   * await terminal.sendStdin("go\n");
   * console.log((await terminal.wait()).stdout.includes("30 100")); // true
   */
  async resize(terminalId: string, size: { rows: number; cols: number }, options: SignalOption = {}): Promise<void> {
    const params = { id: this.#sandboxId, commandId: terminalId };
    await this.#wire.http.call("resizeCommand", { params, body: size, ...options });
  }

  /**
   * Ends a terminal and the processes in it.
   *
   * @example
   * const terminal = await sandbox.pty.create();
   * await sandbox.pty.kill(terminal.id);
   * console.log((await terminal.wait()).exitCode); // null
   */
  async kill(terminalId: string, options: SignalOption = {}): Promise<void> {
    await this.#commands.kill(terminalId, options);
  }
}

async function show(
  handle: CommandHandle,
  onData: NonNullable<PtyOptions["onData"]>,
  signal: AbortSignal | undefined,
): Promise<void> {
  for await (const event of handle.events({ signal })) {
    if (event.type === "stdout" || event.type === "stderr") await onData(event.data);
  }
}
