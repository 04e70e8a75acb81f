/** Where the process of an app runs. One contract suite runs against all levels. */
export type IsolationLevel = "process" | "bubblewrap" | "gvisor";

export interface AppLimits {
  memoryBytes: number;
  processes: number;
  cpus: number;
  fileBytes: number;
}

export interface LaunchOptions {
  /** Unique on this machine: part of the names of cgroups and of files. */
  id: string;
  /** The folder of the app, readable inside. Its npm packages are found from there. */
  folder: string;
  /** The runtime as one JavaScript file. */
  runtime: string;
  limits: AppLimits;
  env: Readonly<Record<string, string>>;
  /** Ports that clients may reach through `forward`. */
  ports: readonly number[];
  signal: AbortSignal;
}

export interface AppUsage {
  memoryBytes: number;
  cpuMs: number;
  processes: number;
}

export type AppEnd =
  | { kind: "exit"; code: number }
  | { kind: "signal"; signal: string }
  | { kind: "oom" }
  | { kind: "lost"; reason: string };

/** The process of an app with the byte stream of the wire protocol. */
export interface AppProcess {
  readonly pid: number | undefined;
  /** Frames for the runtime. Resolves when there is room for more. */
  write(bytes: Uint8Array): Promise<void>;
  /** Bytes from the runtime, to be read by one reader; ends with the process. */
  readonly output: AsyncIterable<Uint8Array>;
  /** Text that the app wrote outside the protocol, such as a panic of Node: the last 64 KiB. */
  stderrTail(): string;
  usage(): Promise<AppUsage>;
  /** Changes how much processor time it may use, where the level can. */
  setCpus?(cpus: number): Promise<void>;
  /** Resolves when the server answers that the app is reached through, if there is one between. */
  reachable?(): Promise<void>;
  /** An address on this machine that leads to a port of the app. */
  forward(port: number): Promise<{ host: string; port: number }>;
  /** Ends it and everything that it started; resolves when nothing is left. Idempotent. */
  kill(): Promise<void>;
  readonly ended: Promise<AppEnd>;
}

export interface AppHost extends AsyncDisposable {
  readonly level: IsolationLevel;
  /**
   * What is missing on this machine, with how to get it; empty if the level can be provided. A level that was asked for
   * by name, and is not only tried because it is the strongest, may start what it needs.
   */
  missing(isAskedFor?: boolean): Promise<string[]>;
  /** Limits that the level enforces here, for a person: `memory by cgroup`, `memory by polling`. */
  enforcement(): Promise<string[]>;
  launch(options: LaunchOptions): Promise<AppProcess>;
}
