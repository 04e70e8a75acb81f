import { importRules } from "@atoll/guard";
import { isSandboxError, SandboxError, type SecurityProfile } from "@atoll/protocol";
import type { Artifact } from "../compiler/artifact.ts";
import { ModuleGraph } from "../graph/module-graph.ts";
import type { AppEnd, AppHost, AppProcess } from "../isolation/app-host.ts";
import { runtimeBundle } from "../isolation/runtime-bundle.ts";
import { Connection, type RuntimeEvent } from "../wire/connection.ts";
import { decode, encode } from "../wire/encode.ts";
import type { Params, Reply, ServiceSnapshot } from "../wire/protocol.ts";
import type { AppConfig, AppInfo } from "./app-options.ts";
import { describeEnd } from "./describe.ts";

const startTimeoutMs = 30_000;
/** The runtime keeps a limit itself. The host waits this much longer before it gives up on an answer. */
const graceMs = 2_000;

interface Launch {
  id: string;
  folder: string;
  config: AppConfig;
  profile: SecurityProfile;
  host: AppHost;
  onEvent: (event: RuntimeEvent) => void;
  /** Turns the places in stacks into those of the sources. */
  mapStack: (stack: string) => string;
  /** Called once with the reason, however the process ends. */
  onEnd: (app: RunningApp, error: SandboxError) => void;
}

/** The process of an app. It is pinged, and killed when it does not answer. */
export class RunningApp {
  readonly connection: Connection;
  readonly process: AppProcess;
  readonly #config: AppConfig;
  readonly #profile: SecurityProfile;
  readonly #heartbeat: NodeJS.Timeout;
  #isStarted = false;
  #isSilent = false;

  private constructor(process: AppProcess, { config, profile, onEvent, onEnd, mapStack }: Launch) {
    this.#profile = profile;
    this.process = process;
    this.#config = config;
    this.connection = new Connection(process, onEvent, mapStack);
    this.#heartbeat = setInterval(() => void this.#ping(), Math.max(100, config.limits.unresponsiveMs / 4));
    this.#heartbeat.unref();
    void process.ended.then((end) => {
      clearInterval(this.#heartbeat);
      onEnd(this, this.#whyEnded(end));
    });
  }

  static async launch(launch: Launch): Promise<RunningApp> {
    const { id, folder, config, host } = launch;
    const process = await host.launch({
      id,
      folder,
      runtime: await runtimeBundle(),
      limits: config.limits,
      env: config.env,
      ports: config.ports,
      signal: new AbortController().signal,
    });
    return new RunningApp(process, launch);
  }

  /** Loads the modules of a generation and starts the supervision tree, from snapshots where there are some. */
  async start(generation: number, modules: Iterable<Artifact>, snapshots: readonly ServiceSnapshot[]): Promise<void> {
    const { entry } = this.#config;
    const graph = new ModuleGraph(modules);
    const artifacts = graph.loadOrder(entry).flatMap((module) => graph.artifact(module) ?? []);
    const imports = importRules(this.#profile);
    const load = { generation, entry, artifacts, ...(imports === undefined ? {} : { imports }) };
    await this.connection.request("load", load, startTimeoutMs);
    await this.connection.request("start", { snapshots: [...snapshots] }, startTimeoutMs);
    this.#isStarted = true;
  }

  async call(service: string, name: string, argument: unknown, askedMs: number): Promise<unknown> {
    const timeoutMs = this.#within(askedMs);
    const params = { service, name, argument: encode(argument), timeoutMs };
    return decode((await this.connection.request("call", params, timeoutMs + graceMs)).value);
  }

  async cast(service: string, name: string, argument: unknown): Promise<void> {
    await this.connection.request("cast", { service, name, argument: encode(argument) }, graceMs);
  }

  /** Runs an exported function of a module. */
  async run(module: string, name: string, parameters: readonly unknown[], askedMs: number): Promise<unknown> {
    const timeoutMs = this.#within(askedMs);
    const params = { module, export: name, arguments: encode(parameters), timeoutMs };
    return decode((await this.connection.request("run", params, timeoutMs + graceMs)).value);
  }

  inspect(options: Params<"inspect"> = {}): Promise<Reply<"inspect">> {
    // A full collection of garbage may take its time.
    return this.connection.request("inspect", options, startTimeoutMs);
  }

  async inject(service: string, fault: Params<"fault">["fault"]): Promise<void> {
    await this.connection.request("fault", { service, fault }, graceMs);
  }

  async ports(): Promise<AppInfo["ports"]> {
    return Promise.all(
      this.#config.ports.map(async (port) => {
        const address = await this.process.forward(port);
        return { port, host: address.host, hostPort: address.port };
      }),
    );
  }

  async kill(): Promise<void> {
    clearInterval(this.#heartbeat);
    await this.process.kill();
  }

  /** The profile bounds the time of each call. */
  #within(timeoutMs: number): number {
    return Math.min(timeoutMs, this.#profile.limits.runTimeMs ?? timeoutMs);
  }

  #whyEnded(end: AppEnd): SandboxError {
    const { failure } = this.connection;
    if (failure?.code === "guest_violation") return failure;
    const { unresponsiveMs } = this.#config.limits;
    if (this.#isSilent) {
      return new SandboxError("guest_silent", `it was blocked for longer than ${unresponsiveMs} ms`, {
        suggestion: "Look for a loop without an `await`, or raise limits.unresponsiveMs.",
      });
    }
    const reason = describeEnd(end, this.process.stderrTail());
    return end.kind === "oom"
      ? new SandboxError("limit_reached", reason, { suggestion: "Raise limits.memoryBytes, or look for a leak." })
      : new SandboxError("sandbox_ended", reason);
  }

  async #ping(): Promise<void> {
    if (!this.#isStarted) return;
    const { unresponsiveMs } = this.#config.limits;
    const ping = (): Promise<unknown> => this.connection.request("ping", {}, unresponsiveMs);
    // What follows is the same as for any other end of the process.
    const kill = (error: unknown): Promise<void> => {
      // A process that has ended by itself does not answer either, for a reason of its own. Pings overlap: after the
      // one that was too late, the end that it caused rejects the others.
      this.#isSilent ||= isSandboxError(error, "timed_out");
      return this.process.kill();
    };
    await ping().catch(async (error: unknown) => {
      if (this.process.reachable === undefined) return kill(error);
      await this.process.reachable();
      return ping().catch(kill);
    });
  }
}
