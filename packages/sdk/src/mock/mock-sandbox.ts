import {
  assertAccepts,
  SandboxError,
  type CheckpointInfo,
  type CommandInfo,
  type CreateSandbox,
  type RunCommand,
  type SandboxInfo,
  type SandboxId,
} from "@atoll/protocol";
import { MockCommand, type MockProgram } from "./mock-command.ts";
import { MockFiles } from "./mock-files.ts";

const mockServer = { id: "mock", url: "http://mock" };

/** A sandbox in memory. */
export class MockSandbox {
  readonly files = new MockFiles();
  readonly commands = new Map<string, MockCommand>();
  readonly publicPorts = new Set<number>();
  readonly token: string;
  readonly env: Record<string, string>;
  readonly request: CreateSandbox;
  readonly checkpoints: CheckpointInfo[] = [];
  readonly #info: Omit<SandboxInfo, "runningCommands">;

  constructor(id: SandboxId, request: CreateSandbox, token: string) {
    this.token = token;
    this.env = request.env;
    this.request = request;
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
      persistent: request.persistent,
      server: mockServer,
    };
  }

  info(): SandboxInfo {
    const running = [...this.commands.values()].filter(({ info }) => info.state === "running");
    const { server, ...info } = this.#info;
    const isStored = info.persistent && info.state === "paused";
    return { ...info, ...(isStored || server === undefined ? {} : { server }), runningCommands: running.length };
  }

  change(changes: {
    [Name in "labels" | "timeouts" | "egress" | "heldBy"]?: SandboxInfo[Name] | undefined;
  }): void {
    for (const [name, value] of Object.entries(changes))
      if (value !== undefined) Object.assign(this.#info, { [name]: value });
  }

  /** Its commands go on meanwhile: there is nothing to freeze. */
  pause(): CheckpointInfo {
    assertAccepts(this.#info, "pause");
    const n = this.checkpoints.length + 1;
    const sizes = { sizeBytes: 0, memoryBytes: 0, filesBytes: 0 };
    const checkpoint = { n, parent: n === 1 ? null : n - 1, createdAtMs: Date.now(), ...sizes };
    this.checkpoints.push(checkpoint);
    this.#info.state = "paused";
    return checkpoint;
  }

  resume(): CheckpointInfo {
    assertAccepts(this.#info, "resume");
    this.#info.state = "running";
    const checkpoint = this.checkpoints.at(-1);
    if (checkpoint === undefined) throw new Error("A paused sandbox has a checkpoint");
    return checkpoint;
  }

  wake(): void {
    if (this.#info.state === "paused") this.resume();
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
