import {
  assertAccepts,
  SandboxError,
  type ListedCheckpoint,
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
  readonly checkpoints: ListedCheckpoint[] = [];
  readonly #saved = new Map<number, { files: MockFiles; commands: MockCommand[] }>();
  #current: number | undefined;
  #rollbacks = 0;
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
      profile: request.profile ?? "standard",
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
    return {
      ...info,
      ...(isStored || server === undefined ? {} : { server }),
      ...(this.#current === undefined ? {} : { checkpoint: this.#current }),
      ...(this.#rollbacks === 0 ? {} : { rollbacks: this.#rollbacks }),
      runningCommands: running.length,
    };
  }

  change(changes: {
    [Name in "labels" | "timeouts" | "egress" | "heldBy"]?: SandboxInfo[Name] | undefined;
  }): void {
    for (const [name, value] of Object.entries(changes))
      if (value !== undefined) Object.assign(this.#info, { [name]: value });
  }

  /** Commands go on during a pause: the mock has nothing to freeze. */
  pause(): ListedCheckpoint {
    assertAccepts(this.#info, "pause");
    const n = this.#saved.size + 1;
    const sizes = { sizeBytes: 0, memoryBytes: 0, filesBytes: 0 };
    const place = { local: true, stored: this.request.persistent };
    const checkpoint = { n, parent: this.#current ?? null, createdAtMs: Date.now(), ...sizes, ...place };
    this.checkpoints.push(checkpoint);
    const files = new MockFiles();
    files.replaceWith(this.files);
    this.#saved.set(n, { files, commands: [...this.commands.values()] });
    this.#current = n;
    this.#info.state = "paused";
    return checkpoint;
  }

  resume(): ListedCheckpoint {
    assertAccepts(this.#info, "resume");
    this.#info.state = "running";
    const checkpoint = this.checkpoints.find(({ n }) => n === this.#current);
    if (checkpoint === undefined) throw new Error("A paused sandbox has a checkpoint");
    return checkpoint;
  }

  /** Commands of that time go on from where they are: the mock has no memory to restore. */
  rollBack(n: number): { left?: number } {
    assertAccepts(this.#info, "roll back");
    const saved = this.#saved.get(n);
    if (saved === undefined || !this.checkpoints.some((checkpoint) => checkpoint.n === n)) {
      throw new SandboxError("not_found", `Cannot roll back sandbox ${this.#info.id}: it has no checkpoint ${n}`);
    }
    const left = this.#info.state === "running" ? this.pause().n : undefined;
    this.files.replaceWith(saved.files);
    this.#rollbacks += 1;
    const gone = [...this.commands.values()].filter((command) => !saved.commands.includes(command));
    for (const command of this.commands.values()) command.rollBack(this.#rollbacks);
    for (const command of gone) {
      this.commands.delete(command.info.id);
      command.vanish();
    }
    this.#current = n;
    this.#info.state = "running";
    return left === undefined ? {} : { left };
  }

  removeCheckpoint(n: number): boolean {
    if (n === this.#current)
      throw new SandboxError("in_use", `Cannot remove checkpoint ${n}: it is the sandbox's current one`);
    const at = this.checkpoints.findIndex((checkpoint) => checkpoint.n === n);
    if (at < 0) return false;
    this.checkpoints.splice(at, 1);
    return true;
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
    throw new SandboxError("in_use", `Cannot use the sandbox: ${heldBy} holds it`);
  }

  run(request: RunCommand, program: MockProgram, onEnd: (info: CommandInfo) => void): MockCommand {
    const command = new MockCommand(this.#info.id, request, program, this.env, onEnd);
    if (this.#rollbacks > 0) command.info.rollbacks = this.#rollbacks;
    this.commands.set(command.info.id, command);
    return command;
  }

  command(id: string, rollbacks?: number): MockCommand {
    const command = this.commands.get(id);
    if (command === undefined && rollbacks !== undefined && rollbacks !== this.#rollbacks) {
      throw new SandboxError("rolled_back", `Cannot go on: sandbox ${this.#info.id} was rolled back`);
    }
    if (command === undefined) throw new SandboxError("not_found", `Cannot find command ${id}`);
    return command;
  }

  /** Wakes the followers of all commands, so that they see that the server stops. */
  ring(): void {
    for (const { bell } of this.commands.values()) bell.ring();
  }

  end(): void {
    for (const command of this.commands.values()) command.kill("SIGKILL");
  }
}
