import {
  SandboxError,
  SandboxId,
  type ApiEvent,
  type CommandInfo,
  type CreateSandbox,
  type KeyInfo,
  type RunCommand,
  type SnapshotInfo,
  type SnapshotName,
} from "@atoll/protocol";
import type { TemplateInfo } from "../templates.ts";
import { Bell } from "./bell.ts";
import type { ArchiveEntry } from "./mock-archive.ts";
import { randomName, type MockCommand, type MockProgram } from "./mock-command.ts";
import { MockSandbox } from "./mock-sandbox.ts";
import { MockSignedFiles } from "./mock-signed-files.ts";
import { MockSnapshots } from "./mock-snapshots.ts";

type EventBody<Event = ApiEvent> = Event extends ApiEvent ? Omit<Event, "cursor" | "atMs"> : never;

/** Everything that outlives a connection: what a server keeps. */
export class MockWorld {
  readonly apiKey = `mock-${randomName()}`;
  readonly sandboxes = new Map<string, MockSandbox>();
  readonly keys = new Map<string, { key: KeyInfo; secret: string }>();
  readonly events: ApiEvent[] = [];
  readonly templates = new Map<string, TemplateInfo>([["host", { name: "host", kind: "host", isBuiltIn: true }]]);
  readonly signed = new MockSignedFiles();
  readonly snapshots = new MockSnapshots();
  readonly bell = new Bell();
  /** Answers by idempotency key: the same key gives the same work. */
  readonly known = new Map<string, Promise<unknown>>();
  readonly #ended = new Set<string>();
  readonly #programs: { matches: (line: string) => boolean; program: MockProgram }[] = [];

  /** The latest script that matches runs. */
  script(pattern: string | RegExp, program: MockProgram): void {
    const matches =
      typeof pattern === "string" ? (line: string) => line === pattern : (line: string) => pattern.test(line);
    this.#programs.unshift({ matches, program });
  }

  create({ snapshot, ...request }: CreateSandbox): MockSandbox {
    if (snapshot !== undefined) return this.#createFrom(snapshot, request);
    if (!this.templates.has(request.template)) {
      throw new SandboxError("not_found", `Cannot find template ${request.template}`);
    }
    if (request.persistent && request.driver !== "gvisor") {
      throw new SandboxError("unsupported", "Cannot create a persistent sandbox: only gvisor can save memory");
    }
    const id = SandboxId.parse(randomName());
    const sandbox = new MockSandbox(id, request, `mock-token-${randomName()}`);
    this.sandboxes.set(id, sandbox);
    this.emit({ type: "sandbox.state", sandboxId: id, from: "creating", to: "running" });
    return sandbox;
  }

  takeSnapshot(sandbox: MockSandbox, name: SnapshotName): SnapshotInfo {
    return this.#created(this.snapshots.take(name, sandbox.info(), sandbox.files));
  }

  importSnapshot(name: SnapshotName, file: Uint8Array): SnapshotInfo {
    return this.#created(this.snapshots.import(name, file));
  }

  removeSnapshot(ref: string): void {
    const { name, owner } = this.snapshots.remove(ref);
    this.emit({ type: "snapshot.removed", name, owner });
  }

  /** Copies the files; commands that run are not copied. */
  fork(parent: MockSandbox): MockSandbox {
    const copy = this.create(parent.request);
    copy.files.copyFrom(parent.files);
    return copy;
  }

  sandbox(id: string): MockSandbox {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) throw missing(id);
    return sandbox;
  }

  kill(id: string): boolean {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined && this.#ended.has(id)) return false;
    if (sandbox === undefined) throw missing(id);
    this.sandboxes.delete(id);
    this.#ended.add(id);
    sandbox.end();
    const reason = { kind: "asked", message: "killed" } as const;
    this.emit({ type: "sandbox.state", sandboxId: sandbox.info().id, from: "killing", to: "killed", reason });
    return true;
  }

  importTemplate(name: string, entries: readonly ArchiveEntry[]): TemplateInfo {
    if (this.templates.has(name)) {
      throw new SandboxError("already_exists", `Cannot import template ${name}: one with this name exists`);
    }
    if (entries.length === 0) {
      throw new SandboxError("invalid_argument", "Cannot use this as a root filesystem: it is empty");
    }
    const template = { name, kind: "rootfs", isBuiltIn: false };
    this.templates.set(name, template);
    return template;
  }

  removeTemplate(name: string): void {
    if (name === "host") {
      throw new SandboxError("invalid_argument", "Cannot remove the template host: it is made when it is asked for");
    }
    const user = [...this.sandboxes.values()].find((sandbox) => sandbox.info().template === name);
    if (user !== undefined) {
      throw new SandboxError("in_use", `Cannot remove template ${name}: sandbox ${user.info().id} uses it`);
    }
    this.templates.delete(name);
  }

  run(sandbox: MockSandbox, request: RunCommand): MockCommand {
    const line = request.shell ?? request.argv?.join(" ") ?? "";
    const program = this.#programs.find(({ matches }) => matches(line))?.program ?? unknownProgram;
    const command = sandbox.run(request, program, (info) => this.#commandEnded(info));
    const { id, sandboxId, argv } = command.info;
    this.emit({ type: "command.started", sandboxId, commandId: id, argv });
    return command;
  }

  emit(event: EventBody): void {
    this.events.push({ ...event, cursor: this.events.length + 1, atMs: Date.now() });
    this.bell.ring();
  }

  #createFrom(snapshot: string, request: CreateSandbox): MockSandbox {
    const { template } = this.snapshots.get(snapshot);
    if (request.template !== "host" && request.template !== template) {
      throw new SandboxError("invalid_argument", `Cannot create sandbox: the snapshot is of template ${template}`);
    }
    const sandbox = this.create({ ...request, template });
    sandbox.files.copyFrom(this.snapshots.files(snapshot));
    return sandbox;
  }

  #created(info: SnapshotInfo): SnapshotInfo {
    const { name, owner } = info;
    this.emit({ type: "snapshot.created", name, owner });
    return info;
  }

  #commandEnded({ id, sandboxId, exitCode, signal, timedOut }: CommandInfo): void {
    this.emit({ type: "command.ended", sandboxId, commandId: id, exitCode, signal, timedOut });
  }
}

const unknownProgram: MockProgram = ({ line, stderr }) => {
  stderr(`bash: ${line}: command not found (script it with onCommand)\n`);
  return 127;
};

function missing(id: string): SandboxError {
  return new SandboxError("not_found", `Cannot find sandbox ${id}`);
}
