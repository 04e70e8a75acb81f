import {
  SandboxError,
  type CommandInfo,
  type CreateSandbox,
  type RunCommand,
  type SandboxInfo,
  type SandboxId,
} from "@atoll/protocol";
import { MockCommand, type MockProgram } from "./mock-command.ts";
import { MockFiles } from "./mock-files.ts";

/** A sandbox in memory. */
export class MockSandbox {
  readonly files = new MockFiles();
  readonly commands = new Map<string, MockCommand>();
  readonly publicPorts = new Set<number>();
  readonly token: string;
  readonly env: Record<string, string>;
  readonly #info: Omit<SandboxInfo, "runningCommands">;

  constructor(id: SandboxId, request: CreateSandbox, token: string) {
    this.token = token;
    this.env = request.env;
    this.#info = {
      id,
      state: "running",
      template: request.template,
      driver: request.driver,
      limits: request.limits,
      labels: request.labels,
      timeouts: request.timeouts,
      egress: request.egress,
      createdAtMs: Date.now(),
      owner: "mock",
    };
  }

  info(): SandboxInfo {
    const running = [...this.commands.values()].filter(({ info }) => info.state === "running");
    return { ...this.#info, runningCommands: running.length };
  }

  change(changes: {
    [Name in "labels" | "timeouts" | "egress" | "heldBy"]?: SandboxInfo[Name] | undefined;
  }): void {
    for (const [name, value] of Object.entries(changes))
      if (value !== undefined) Object.assign(this.#info, { [name]: value });
  }

  release(): void {
    delete this.#info.heldBy;
  }

  assertNotHeld(holder: string | undefined): void {
    const { heldBy } = this.#info;
    if (heldBy === undefined || heldBy === holder) return;
    throw new SandboxError("in_use", `Cannot use the sandbox: ${heldBy} has it for itself`);
  }

  run(request: RunCommand, program: MockProgram, onEnd: (info: CommandInfo) => void): MockCommand {
    const command = new MockCommand(this.#info.id, request, program, this.env, onEnd);
    this.commands.set(command.info.id, command);
    return command;
  }

  command(id: string): MockCommand {
    const command = this.commands.get(id);
    if (command === undefined) throw new SandboxError("not_found", `Cannot find command ${id}`);
    return command;
  }

  /** Wakes whoever follows a command, to see that the server stops. */
  ring(): void {
    for (const { bell } of this.commands.values()) bell.ring();
  }

  end(): void {
    for (const command of this.commands.values()) command.kill("SIGKILL");
  }
}
