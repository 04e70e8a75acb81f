import {
  isSandboxError,
  SandboxError,
  type SandboxId,
  type EgressPolicy,
  type EgressPolicyInput,
  type PortInfo,
  type ListedCheckpoint,
  type SandboxInfo,
  type SandboxPaused,
  type SandboxResumed,
  type SnapshotInfo,
  type SandboxRolledBack,
  type UpdateSandboxInput,
} from "@atoll/protocol";
import { clientFor, splitConnection, type Atoll, type ListOptions } from "./client.ts";
import { Commands } from "./commands/commands.ts";
import { Files } from "./files/files.ts";
import { Ptys } from "./pty.ts";
import {
  unhurried,
  type CreateOptions,
  type Metrics,
  type MetricsHistory,
  type SignalOption,
  type Timeouts,
  type WithConnection,
} from "./sandbox-options.ts";

/**
 * A sandbox on the server. It lives there: dropping this object does not end it. With `await using` it ends with the
 * block.
 *
 * @example
 * await using sandbox = await Sandbox.create();
 * const { stdout } = await sandbox.commands.run("uname -s");
 * console.log(stdout.trim()); // Linux
 */
export class Sandbox {
  readonly id: SandboxId;
  /** Gives access to this sandbox without a key; only the client that created the sandbox has it. */
  readonly token: string | undefined;
  readonly commands: Commands;
  readonly files: Files;
  readonly pty: Ptys;
  readonly #client: Atoll;

  constructor(client: Atoll, id: SandboxId, token?: string) {
    this.#client = client;
    this.id = id;
    this.token = token;
    this.commands = new Commands(client, id);
    this.files = new Files(client, id, client.connection.baseUrl);
    this.pty = new Ptys(client, id);
  }

  /**
   * Creates a sandbox and waits until it runs.
   *
   * @example
   * const sandbox = await Sandbox.create({ limits: { memoryBytes: 512 * 1024 * 1024 }, labels: { team: "blue" } });
   * console.log((await sandbox.getInfo()).state); // running
   * await sandbox.kill();
   */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const [connection, { signal, env, envs, ...given }] = splitConnection(options);
    const client = clientFor(connection);
    const body = { ...given, ...(env === undefined && envs === undefined ? {} : { env: { ...envs, ...env } }) };
    const patience = body.snapshot === undefined ? {} : unhurried;
    const undo = (made: { sandbox: SandboxInfo }) => Sandbox.kill(made.sandbox.id, { client });
    const { sandbox, token } = await client.http.make("createSandbox", { body, signal, ...patience }, undo);
    return new Sandbox(client, sandbox.id, token);
  }

  /**
   * Returns the sandbox with this id, resumed if it is paused. Rejects if there is none.
   *
   * @example
   * const { id } = await Sandbox.create();
   * const same = await Sandbox.connect(id);
   * await same.kill();
   */
  static async connect(id: string, options: WithConnection & SignalOption = {}): Promise<Sandbox> {
    const client = clientFor(options);
    const info = await client.http.call("getSandbox", { params: { id }, signal: options.signal });
    const sandbox = new Sandbox(client, info.id);
    if (info.state === "paused") await sandbox.#wake(options);
    return sandbox;
  }

  /**
   * Yields every sandbox that the key may see.
   *
   * @example
   * const sandbox = await Sandbox.create({ labels: { run: "17" } });
   * for await (const { id } of Sandbox.list({ labels: { run: "17" } })) console.log(id === sandbox.id); // true
   */
  static list(options: ListOptions & WithConnection = {}): AsyncGenerator<SandboxInfo, void, undefined> {
    return clientFor(options).sandboxes(options);
  }

  /**
   * Ends a sandbox by its id and removes everything of it. Resolves with `false` if it was gone already. Rejects with
   * `not_found` when the server knows of no such sandbox that the key may see.
   *
   * @example
   * const { id } = await Sandbox.create();
   * console.log(await Sandbox.kill(id)); // true
   */
  static async kill(id: string, options: WithConnection & SignalOption = {}): Promise<boolean> {
    // The server refuses a malformed id.
    const call = { params: { id: id as SandboxId }, isRepeatable: true, signal: options.signal } as const;
    return (await clientFor(options).http.call("killSandbox", call)).killed;
  }

  /**
   * Returns what the server knows about the sandbox.
   *
   * @example
   * console.log((await sandbox.getInfo()).state); // running
   */
  async getInfo(options: SignalOption = {}): Promise<SandboxInfo> {
    return this.#client.http.call("getSandbox", { params: { id: this.id }, signal: options.signal });
  }

  /**
   * Returns memory, CPU time, processes and disk, as they are now.
   *
   * @example
   * console.log((await sandbox.getMetrics()).memoryBytes > 0); // true
   */
  async getMetrics(options: SignalOption = {}): Promise<Metrics> {
    return this.#client.http.call("getUsage", { params: { id: this.id }, signal: options.signal });
  }

  /**
   * Returns what the sandbox used over the last minutes, as the server has sampled it, without waking it.
   *
   * @example
   * const { samples } = await sandbox.getMetricsHistory();
   * console.log(samples.every(({ memoryBytes }) => memoryBytes > 0)); // true
   */
  async getMetricsHistory(options: SignalOption & { sinceMs?: number } = {}): Promise<MetricsHistory> {
    const query = options.sinceMs === undefined ? {} : { sinceMs: options.sinceMs };
    return this.#client.http.call("getUsageHistory", { params: { id: this.id }, query, signal: options.signal });
  }

  /**
   * Sets when the sandbox ends by itself: a number is how long it may be idle, an object changes the fields that it
   * has.
   *
   * @example
   * await sandbox.setTimeout(5 * 60_000);
   * await sandbox.setTimeout({ lifetimeMs: 3_600_000, onTimeout: "kill" });
   * console.log((await sandbox.getInfo()).timeouts.idleMs); // 300000
   */
  async setTimeout(timeouts: number | Timeouts, options: SignalOption = {}): Promise<SandboxInfo> {
    const { timeouts: current } = await this.getInfo(options);
    const changed = typeof timeouts === "number" ? { idleMs: timeouts } : timeouts;
    return this.update({ timeouts: { ...current, ...changed } }, options);
  }

  /**
   * Saves memory and files of the sandbox and frees everything else. Every process continues where it was when the
   * sandbox is resumed, which the first request for a command, a file or a port does too. If something cannot be saved,
   * the sandbox runs on and this rejects with `unsaveable`; with `force` the processes that prevent it are ended.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * const { checkpoint } = await sandbox.pause();
   * console.log(checkpoint, (await sandbox.getInfo()).state); // 1 paused
   * await sandbox.kill();
   */
  async pause(options: SignalOption & { force?: boolean | undefined } = {}): Promise<SandboxPaused> {
    const { force = false, signal } = options;
    return this.#client.http.call("pauseSandbox", { params: { id: this.id }, body: { force }, signal, ...unhurried });
  }

  /**
   * Resumes the sandbox. `memory: false` restarts it on its files: on those that were saved, or, if it has failed, on
   * all that it has written.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * await sandbox.pause();
   * const { checkpoint } = await sandbox.resume();
   * console.log(checkpoint, (await sandbox.getInfo()).state); // 1 running
   * await sandbox.kill();
   */
  async resume(options: SignalOption & { memory?: boolean | undefined } = {}): Promise<SandboxResumed> {
    const { memory = true, signal } = options;
    return this.#client.http.call("resumeSandbox", { params: { id: this.id }, body: { memory }, signal, ...unhurried });
  }

  /**
   * Makes running copies of the sandbox, memory and files, that are independent from then on. The sandbox stops only
   * while the checkpoint is made.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * const [copy] = await sandbox.fork();
   * await copy?.files.write("/home/user/note", "changed");
   * console.log(await sandbox.files.exists("/home/user/note")); // false
   * await Promise.all([sandbox.kill(), copy?.kill()]);
   */
  async fork(
    options: SignalOption & { count?: number | undefined; force?: boolean | undefined } = {},
  ): Promise<Sandbox[]> {
    const { count = 1, force = false, signal } = options;
    const call = { params: { id: this.id }, body: { count, force }, signal, ...unhurried };
    const copiesOf = (made: { sandboxes: { sandbox: SandboxInfo; token: string }[] }) =>
      made.sandboxes.map(({ sandbox, token }) => new Sandbox(this.#client, sandbox.id, token));
    const undo = (made: Parameters<typeof copiesOf>[0]) =>
      Promise.allSettled(copiesOf(made).map((copy) => copy.kill()));
    return copiesOf(await this.#client.http.make("forkSandbox", call, undo));
  }

  /**
   * Saves the files of the sandbox under a name, for new sandboxes to start from: here, or on any server that imports
   * the snapshot. The sandbox goes on.
   *
   * @example
   * await sandbox.files.write("tool.sh", "echo ready");
   * await sandbox.snapshot("tools");
   * const copy = await Sandbox.create({ snapshot: "tools" });
   * console.log(await copy.files.read("tool.sh")); // echo ready
   * await copy.kill();
   */
  async snapshot(name: string, options: SignalOption = {}): Promise<SnapshotInfo> {
    const { signal } = options;
    return this.#client.http.call("takeSnapshot", { params: { id: this.id }, body: { name }, signal, ...unhurried });
  }

  /**
   * Lists the checkpoints of the sandbox, the oldest first. Some checkpoints of a persistent sandbox that has moved may
   * be in the store only (`local: false`): a rollback fetches them.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * await sandbox.pause();
   * console.log((await sandbox.checkpoints()).length); // 1
   * await sandbox.kill();
   */
  async checkpoints(options: SignalOption = {}): Promise<ListedCheckpoint[]> {
    const call = { params: { id: this.id }, signal: options.signal };
    return (await this.#client.http.call("listCheckpoints", call)).checkpoints;
  }

  /**
   * Goes back to an earlier checkpoint: memory, files and commands are as they were, and what ran then continues. If
   * the sandbox runs, its present state becomes a checkpoint first. Labels, timeouts and the token stay as they are
   * now. Followers of a command get `rolled_back`.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * await sandbox.files.write("/home/user/note", "first");
   * const { checkpoint } = await sandbox.pause();
   * await sandbox.files.write("/home/user/note", "second");
   * await sandbox.rollback(checkpoint);
   * console.log(await sandbox.files.read("/home/user/note")); // first
   * await sandbox.kill();
   */
  async rollback(
    checkpoint: number,
    options: SignalOption & { force?: boolean | undefined } = {},
  ): Promise<SandboxRolledBack> {
    const { force = false, signal } = options;
    const call = { params: { id: this.id }, body: { checkpoint, force }, signal, ...unhurried };
    return this.#client.http.call("rollBackSandbox", call);
  }

  /**
   * Removes one checkpoint, and what no other one needs. Resolves with true if it was there; the current checkpoint of
   * the sandbox is refused with `in_use`.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * await sandbox.pause();
   * await sandbox.resume();
   * await sandbox.pause();
   * console.log(await sandbox.deleteCheckpoint(1)); // true
   * await sandbox.kill();
   */
  async deleteCheckpoint(checkpoint: number, options: SignalOption = {}): Promise<boolean> {
    const call = { params: { id: this.id, checkpoint: String(checkpoint) }, signal: options.signal };
    return (await this.#client.http.call("removeCheckpoint", call)).removed;
  }

  /**
   * Replaces timeouts or labels.
   *
   * @example
   * const info = await sandbox.update({ labels: { stage: "test" } });
   * console.log(info.labels); // { stage: 'test' }
   */
  async update(changes: UpdateSandboxInput, options: SignalOption = {}): Promise<SandboxInfo> {
    const call = { params: { id: this.id }, body: changes, isRepeatable: true, signal: options.signal } as const;
    return this.#client.http.call("updateSandbox", call);
  }

  /**
   * Returns the URL at which a port of the sandbox is reached over HTTP and WebSocket. Requests need the `token` of the
   * answer, unless the port was made public.
   *
   * @example
   * const { url } = await sandbox.getUrl(8000);
   * console.log(url.startsWith("http")); // true
   */
  async getUrl(port: number, options: SignalOption & { public?: boolean | undefined } = {}): Promise<PortInfo> {
    const { public: isPublic, signal } = options;
    const call = { params: { id: this.id, port }, signal };
    if (isPublic === undefined) return this.#absolute(await this.#client.http.call("getPort", call));
    const change = { ...call, body: { isPublic }, isRepeatable: true } as const;
    return this.#absolute(await this.#client.http.call("setPort", change));
  }

  /**
   * Waits until a program in the sandbox listens on the port.
   *
   * @example
   * await sandbox.commands.run("python3 -m http.server 8000", { background: true });
   * const { port } = await sandbox.waitForPort(8000);
   * console.log(port); // 8000
   */
  async waitForPort(port: number, options: SignalOption & { timeoutMs?: number | undefined } = {}): Promise<PortInfo> {
    const { timeoutMs = 30_000, signal } = options;
    const call = { params: { id: this.id, port }, body: { timeoutMs }, isRepeatable: true, signal } as const;
    return this.#absolute(await this.#client.http.call("waitForPort", { ...call, timeoutMs: timeoutMs + 15_000 }));
  }

  /**
   * Returns what the sandbox may reach.
   *
   * @example
   * console.log((await sandbox.getEgress()).allow); // []
   */
  async getEgress(options: SignalOption = {}): Promise<EgressPolicy> {
    return this.#client.http.call("getEgress", { params: { id: this.id }, signal: options.signal });
  }

  /**
   * Changes what the sandbox may reach, from now on.
   *
   * @example
   * await sandbox.setEgress({ allow: ["*.example.com:443"] });
   * console.log((await sandbox.getEgress()).allow); // [ '*.example.com:443' ]
   */
  async setEgress(policy: EgressPolicyInput, options: SignalOption = {}): Promise<EgressPolicy> {
    const call = { params: { id: this.id }, body: policy, isRepeatable: true, signal: options.signal } as const;
    return this.#client.http.call("setEgress", call);
  }

  /**
   * Holds the sandbox for this client alone, for `ttlMs`: others get `in_use`. The holder is the connection's `holder`.
   *
   * @example
   * const holder = new Atoll({ holder: "build-7" });
   * const mine = await Sandbox.connect(sandbox.id, { client: holder });
   * console.log((await mine.hold()).heldBy); // build-7
   * await mine.unhold();
   */
  async hold(options: SignalOption & { ttlMs?: number | undefined } = {}): Promise<SandboxInfo> {
    const { ttlMs, signal } = options;
    const body = { holder: this.#holder(), ttlMs };
    return this.#client.http.call("holdSandbox", { params: { id: this.id }, body, isRepeatable: true, signal });
  }

  /**
   * Ends the exclusive use of the sandbox.
   *
   * @example
   * const mine = await Sandbox.connect(sandbox.id, { client: new Atoll({ holder: "build-8" }) });
   * await mine.hold({ ttlMs: 10_000 });
   * console.log((await mine.unhold()).heldBy); // undefined
   */
  async unhold(options: SignalOption = {}): Promise<SandboxInfo> {
    const call = { params: { id: this.id }, query: { holder: this.#holder() }, signal: options.signal };
    return this.#client.http.call("unholdSandbox", { ...call, isRepeatable: true });
  }

  /**
   * Cuts the sandbox off from everything, and saves or freezes it, until it is released or killed; for keys with the
   * verb `admin`.
   *
   * @example
   * const suspect = await Sandbox.create();
   * console.log((await suspect.isolate({ reason: "it looks odd" })).isolated?.kind); // operator
   * console.log((await suspect.release()).isolated); // undefined
   * await suspect.kill();
   */
  async isolate(options: SignalOption & { reason?: string | undefined } = {}): Promise<SandboxInfo> {
    const { reason, signal } = options;
    const body = reason === undefined ? {} : { reason };
    return this.#client.http.call("isolateSandbox", { params: { id: this.id }, body, signal, ...unhurried });
  }

  /**
   * Ends an isolation; for keys with the verb `admin`.
   *
   * @example
   * const suspect = await Sandbox.create();
   * await suspect.isolate();
   * await suspect.release();
   * await suspect.kill();
   */
  async release(options: SignalOption = {}): Promise<SandboxInfo> {
    return this.#client.http.call("releaseSandbox", { params: { id: this.id }, signal: options.signal });
  }

  /**
   * Returns what is known about the sandbox as a tar archive: its commands with their output, its checkpoints, and its
   * lines of the audit log; for keys with the verb `admin`.
   *
   * @example
   * const reader = (await sandbox.evidence()).getReader();
   * console.log((await reader.read()).done); // false
   * await reader.cancel();
   */
  async evidence(options: SignalOption = {}): Promise<ReadableStream<Uint8Array>> {
    return this.#client.http.stream("getEvidence", { params: { id: this.id }, signal: options.signal });
  }

  /**
   * Ends the sandbox and removes everything of it. Resolves with `false` if it was gone already, also if the first
   * answer was lost and the request repeated.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * console.log(await sandbox.kill(), await sandbox.kill()); // true false
   */
  async kill(options: SignalOption = {}): Promise<boolean> {
    try {
      return await Sandbox.kill(this.id, { client: this.#client, signal: options.signal });
    } catch (error) {
      // The sandbox existed when this object was made. The server may have forgotten which key it belonged to.
      if (isSandboxError(error, "not_found")) return false;
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  /** Succeeds also if another client resumes the sandbox at the same moment. */
  async #wake(options: SignalOption): Promise<void> {
    await this.resume(options).catch((error: unknown) => {
      if (!isSandboxError(error, "invalid_state") || error.details["state"] !== "running") throw error;
    });
  }

  #holder(): string {
    const { holder } = this.#client.connection;
    if (holder === undefined) {
      throw new SandboxError("invalid_argument", "Cannot hold the sandbox: this client has no name", {
        suggestion: "Give the connection a holder, a name of your choice",
      });
    }
    return holder;
  }

  #absolute(port: PortInfo): PortInfo {
    return { ...port, url: new URL(port.url, `${this.#client.connection.baseUrl}/`).href };
  }
}
