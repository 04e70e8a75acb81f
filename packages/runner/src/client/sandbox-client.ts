import type { CommandEnd, CommandSpec } from "../models/command.ts";
import type { SandboxConfig } from "../models/sandbox-config.ts";

/** Receives the bytes of a command as they come. `write` resolves when there is room for more. */
export interface OutputSink {
  write(stream: "stdout" | "stderr", data: Uint8Array): Promise<void> | void;
}

export interface StartOptions {
  config: SandboxConfig;
  /** Unique among the sandboxes of this client. */
  name: string;
  /** Every sandbox carries the labels of its run, by which a later run finds what a dead one has left. */
  labels: Readonly<Record<string, string>>;
  /** Start from this snapshot instead of the template or image. */
  snapshot?: string;
  /** Whether commands may reach `config.network`. */
  network: boolean;
  signal: AbortSignal;
}

export interface ListedSandbox {
  id: string;
  labels: Readonly<Record<string, string>>;
}

/** Somewhere sandboxes are started. One contract suite runs against every implementation. */
export interface SandboxClient extends AsyncDisposable {
  readonly kind: "atoll" | "docker";
  start(options: StartOptions): Promise<RunnerSandbox>;
  /** The sandboxes that carry all of these labels. */
  list(labels: Readonly<Record<string, string>>, signal: AbortSignal): Promise<ListedSandbox[]>;
  /** Idempotent: a sandbox that is gone is no error. */
  remove(id: string, signal: AbortSignal): Promise<void>;
  /** Filesystem snapshots; absent where the client has none. */
  readonly snapshots?: SnapshotStore;
  /** A text that changes when the base of `config` does: part of the key of every snapshot. */
  baseDigest(config: SandboxConfig, signal: AbortSignal): Promise<string>;
}

export interface SnapshotStore {
  has(name: string, signal: AbortSignal): Promise<boolean>;
  list(signal: AbortSignal): Promise<{ name: string; bytes: number; createdAtMs: number }[]>;
  remove(name: string, signal: AbortSignal): Promise<void>;
}

export interface RunnerSandbox {
  readonly id: string;
  /**
   * Runs one command to its end and passes its output to the sink. Every end is a result, also a time limit, at which
   * the whole process tree is killed; what cannot be known is `lost`. Rejects only when `signal` aborts.
   */
  exec(command: CommandSpec, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd>;
  /** Puts a file or a directory of the host at this path, owned by `user`. */
  copyIn(hostPath: string, path: string, signal: AbortSignal): Promise<void>;
  /** Rejects with `not_found` when there is nothing at the path. Symbolic links are never followed out of it. */
  copyOut(path: string, hostPath: string, signal: AbortSignal): Promise<void>;
  /** Saves the files under a name, which `StartOptions.snapshot` takes. The sandbox goes on. */
  snapshot?(name: string, signal: AbortSignal): Promise<void>;
  /** Ends all processes. The sandbox is kept until it is removed. */
  stop(signal: AbortSignal): Promise<void>;
  remove(signal: AbortSignal): Promise<void>;
}
