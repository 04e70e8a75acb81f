import { EventEmitter } from "node:events";
import { resolve } from "node:path";
import { ProfileBook, type AuditLog, type Sampler } from "@atoll/guard";
import { messageOf } from "@atoll/host";
import { SandboxError, type CustomProfile, type SecurityProfile } from "@atoll/protocol";
import { isModule, type Sources } from "../compiler/app-sources.ts";
import { Compiler, type CompilerOptions } from "../compiler/compiler.ts";
import type { LiveEvent, LiveEventBody } from "../events/live-event.ts";
import type { ModuleGraph } from "../graph/module-graph.ts";
import type { AppHost, AppUsage, IsolationLevel } from "../isolation/app-host.ts";
import { BubblewrapHost } from "../isolation/bubblewrap-host.ts";
import { GvisorHost } from "../isolation/gvisor-host.ts";
import { ProcessHost } from "../isolation/process-host.ts";
import { defaultCacheDir } from "../programs/bundle.ts";
import type { Recovery } from "../recovery/classify.ts";
import { auditEntryOf } from "../security/app-audit.ts";
import { AppMonitor } from "../security/app-monitor.ts";
import { assertWithin, missingFor, resolveProfile } from "../security/app-profile.ts";
import { LiveMetrics } from "../telemetry/live-metrics.ts";
import { TypeChecker } from "../types/type-checker.ts";
import { AppVersions, type GenerationInfo, type ModuleDiff, type ModuleHistory } from "../versions/app-versions.ts";
import { defaultStateDir, VersionStore } from "../versions/version-store.ts";
import type { Params, Reply } from "../wire/protocol.ts";
import type { CodeChange, RollbackTarget, Scan } from "./app-code.ts";
import { checkedId, readAppConfig } from "./app-folder.ts";
import type { AppConfigInput, AppInfo, ReloadResult } from "./app-options.ts";
import { AutoReload } from "./auto-reload.ts";
import { batch, type BatchOptions, type BatchResult } from "./batch.ts";
import { LiveApp } from "./live-app.ts";

const defaultTimeoutMs = 30_000;

export interface LiveManagerOptions {
  /** The levels of isolation that may be used, the strongest first. */
  hosts?: readonly AppHost[];
  compiler?: CompilerOptions;
  /** Where the versions of apps are stored; a folder of the user by default. */
  stateDir?: string;
  /** Security profiles beside the built-in ones, by name. */
  profiles?: Readonly<Record<string, CustomProfile>>;
  /** Where what apps do is recorded, as their profiles demand. */
  audit?: AuditLog;
  /** What samples apps, and has their profiles enforced at a limit. */
  monitor?: Sampler;
  /** Looks at new code of all apps before it is loaded, and may refuse it. */
  scan?: Scan;
}

/** What `run` runs: an exported function of a module. */
export interface Work {
  module: string;
  export: string;
  arguments?: readonly unknown[];
}

/**
 * What `hotReload` brings in: what differs in the folder of the app; only the given files of it; the given sources in
 * place of what their files have; or modules that `compileApp` made.
 */
export interface HotReload {
  files?: readonly string[];
  sources?: Sources;
  artifacts?: readonly unknown[];
  /** A value that is passed to `codeChange`. */
  extra?: unknown;
}

/** Starts, reloads and ends live applications. Each has a queue of its own; none waits for another. */
export class LiveManager implements AsyncDisposable {
  readonly #apps = new Map<string, LiveApp>();
  readonly #hosts: readonly AppHost[];
  readonly #compiler: Compiler;
  readonly #types: TypeChecker;
  readonly #scan: Scan | undefined;
  readonly #stateDir: string;
  readonly #profiles: ProfileBook;
  readonly #audit: AuditLog | undefined;
  readonly #monitor: AppMonitor | undefined;
  readonly #watchers = new Map<string, AutoReload>();
  readonly #metrics = new LiveMetrics(() => this.list());
  readonly #events = new EventEmitter<{ event: [LiveEvent] }>();

  constructor(options: LiveManagerOptions = {}) {
    this.#hosts = options.hosts ?? [new GvisorHost(), new BubblewrapHost(), new ProcessHost()];
    this.#compiler = new Compiler(options.compiler);
    this.#types = new TypeChecker(options.compiler?.cacheDir ?? defaultCacheDir);
    this.#scan = options.scan;
    this.#profiles = new ProfileBook(options.profiles);
    this.#audit = options.audit;
    const { monitor } = options;
    if (monitor !== undefined) this.#monitor = new AppMonitor(monitor, (app, event) => this.#emit(app, event));
    this.#stateDir = options.stateDir ?? defaultStateDir;
  }

  /** Compiles and starts the app of a folder. After a failure, which is thrown, the app stays visible in `error`. */
  create(id: string, folder: string, options: AppConfigInput = {}): Promise<AppInfo> {
    return this.#add(id, folder, options, (app) => app.start());
  }

  /**
   * Starts an app of an earlier manager with code that it ran there: the current generation, or an earlier one. Its
   * states begin again. What has changed in the folder since then is taken by the next reload.
   */
  resume(id: string, folder: string, options: AppConfigInput = {}, generation?: number): Promise<AppInfo> {
    return this.#add(id, folder, options, (app) => app.start(generation ?? app.versions.current));
  }

  async #add(
    id: string,
    folder: string,
    options: AppConfigInput,
    start: (app: LiveApp) => Promise<void>,
  ): Promise<AppInfo> {
    const known = this.#apps.get(checkedId(id));
    if (known !== undefined && !["stopped", "error"].includes(known.info.state)) {
      throw new SandboxError("already_exists", `Cannot create app ${id}: it exists and is ${known.info.state}`, {
        suggestion: "Choose another id, or destroy the app first.",
      });
    }
    if (known !== undefined) await this.#release(id);
    const path = resolve(folder);
    const config = await readAppConfig(path, options, this.#profiles);
    const profile = resolveProfile(config.profile, this.#profiles);
    assertWithin(profile, id, config);
    const host = await this.#hostFor(config.isolation, profile);
    const app = new LiveApp({
      id,
      folder: path,
      config,
      host,
      compiler: this.#compiler,
      types: this.#types,
      profile,
      scan: this.#scan,
      versions: await AppVersions.open(new VersionStore(this.#stateDir, id, path), (error) =>
        this.#emit(id, {
          type: "log",
          level: "error",
          text: `Cannot store the versions of ${id}: ${messageOf(error)}`,
        }),
      ),
      emit: (event) => this.#emit(id, event),
    });
    this.#apps.set(id, app);
    this.#monitor?.watch(app, profile);
    // Watching begins first: an edit during the start is seen, and one that repairs a failed start.
    if (config.autoReload) await this.enableAutoReload(id);
    await start(app);
    return app.info;
  }

  /** Ends an app and forgets its versions. */
  async destroy(id: string): Promise<void> {
    const app = this.#app(id);
    await this.#release(id);
    await app.versions.remove();
    this.#emit(id, { type: "app.destroy" });
  }

  /** Forgets the versions of an app that an earlier manager has run. */
  async forget(id: string, folder: string): Promise<void> {
    await new VersionStore(this.#stateDir, checkedId(id), resolve(folder)).remove();
  }

  /** Starts the process of an app again, with the states that it has, or with `keepState: false` without. */
  async restart(id: string, options: { keepState?: boolean } = {}): Promise<AppInfo> {
    const app = this.#app(id);
    await app.restart(options);
    return app.info;
  }

  batchCreate(
    apps: readonly { id: string; folder: string; options?: AppConfigInput }[],
    options: BatchOptions = {},
  ): Promise<BatchResult<AppInfo>[]> {
    return batch(apps, options, (app) => this.create(app.id, app.folder, app.options));
  }

  batchDestroy(ids: readonly string[], options: BatchOptions = {}): Promise<BatchResult<void>[]> {
    return batch(byId(ids), options, ({ id }) => this.destroy(id));
  }

  batchRun(ids: readonly string[], work: Work, options: BatchOptions = {}): Promise<BatchResult<unknown>[]> {
    return batch(byId(ids), options, ({ id }) => this.run(id, work));
  }

  batchHotReload(
    ids: readonly string[],
    change: HotReload = {},
    options: BatchOptions = {},
  ): Promise<BatchResult<ReloadResult>[]> {
    return batch(byId(ids), options, ({ id }) => this.hotReload(id, change));
  }

  get(id: string): AppInfo {
    return this.#app(id).info;
  }

  /** All apps, the oldest first. */
  list(): AppInfo[] {
    return [...this.#apps.values()].map(({ info }) => info);
  }

  async call(
    id: string,
    service: string,
    name: string,
    argument?: unknown,
    timeoutMs = defaultTimeoutMs,
  ): Promise<unknown> {
    return this.#app(id).running().call(service, name, argument, timeoutMs);
  }

  async cast(id: string, service: string, name: string, argument?: unknown): Promise<void> {
    return this.#app(id).running().cast(service, name, argument);
  }

  async run(id: string, work: Work, timeoutMs = defaultTimeoutMs): Promise<unknown> {
    return this.#app(id)
      .running()
      .run(work.module, work.export, work.arguments ?? [], timeoutMs);
  }

  /** Brings changed code into a running app. If it cannot be used, rejects with `ReloadFailed`, and nothing changes. */
  async hotReload(id: string, { extra, ...change }: HotReload = {}): Promise<ReloadResult> {
    return this.#app(id).reload(changeOf(change), { cause: "request", extra });
  }

  /** Does what helps an app against an error, which the app need not have noticed, and returns what that was. */
  async handleError(id: string, error: unknown): Promise<Recovery> {
    return this.#app(id).handle(error);
  }

  /** Makes a service fail on purpose, to test what follows from it. `kill` ends the whole process. */
  async injectFault(id: string, fault: Fault): Promise<void> {
    const running = this.#app(id).running();
    if (fault.kind === "kill") await running.process.kill();
    else await running.inject(fault.service, fault);
  }

  /** Goes back to an earlier generation, or to an earlier version of one module. State is kept and migrated. */
  rollback(id: string, target: RollbackTarget): Promise<ReloadResult> {
    return this.#app(id).rollback(target, "requested");
  }

  /** The generations that are kept, the newest first. */
  listVersions(id: string): GenerationInfo[] {
    return this.#app(id).versions.list();
  }

  /** The versions of a module that are kept, the newest first, and the one that runs. */
  history(id: string, module: string): ModuleHistory {
    return this.#app(id).versions.history(module);
  }

  /** The version of a module that runs; `undefined` if the module is not part of the app now. */
  currentVersion(id: string, module: string): number | undefined {
    return this.#app(id).versions.currentVersion(module);
  }

  /** What differs between two generations, or between two versions of a module. */
  async diff(id: string, range: { module?: string; from: number; to: number }): Promise<ModuleDiff[]> {
    const { versions } = this.#app(id);
    const { module, from, to } = range;
    return module === undefined ? versions.diff(from, to) : [await versions.moduleDiff(module, from, to)];
  }

  /** What imports what in the code that runs, with the order in which changes are evaluated. */
  dependencyGraph(id: string): ModuleGraph {
    return this.#app(id).graph();
  }

  /** The services of an app, with their versions, mailboxes and restarts. */
  async inspect(id: string, options: Params<"inspect"> = {}): Promise<Reply<"inspect">> {
    return this.#app(id).running().inspect(options);
  }

  /** Reloads the app whenever a file of its folder changes. Idempotent. */
  async enableAutoReload(id: string): Promise<void> {
    const app = this.#app(id);
    if (this.#watchers.has(id)) return;
    this.#watchers.set(id, await AutoReload.start(app, (event) => this.#emit(id, event)));
    app.autoReload = true;
  }

  disableAutoReload(id: string): void {
    this.#watchers.get(id)?.[Symbol.dispose]();
    this.#watchers.delete(id);
    this.#app(id).autoReload = false;
  }

  async resourceUsage(id: string): Promise<AppUsage> {
    return this.#app(id).running().process.usage();
  }

  /** Calls the listener for everything that happens, until the returned function is called. */
  onEvent(listener: (event: LiveEvent) => void): () => void {
    this.#events.on("event", listener);
    return () => void this.#events.off("event", listener);
  }

  /** What happened to all apps, and their states now, as `/metrics` of a server has it for Prometheus. */
  metrics(): Promise<{ contentType: string; text: string }> {
    return this.#metrics.text();
  }

  /** Ends all apps. Their versions stay on disk for a later manager. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#apps.keys()].map((id) => this.#release(id)));
    this.#monitor?.[Symbol.dispose]();
    for (const host of this.#hosts) await host[Symbol.asyncDispose]();
    await this.#types[Symbol.asyncDispose]();
    await this.#compiler[Symbol.asyncDispose]();
  }

  async #release(id: string): Promise<void> {
    this.disableAutoReload(id);
    this.#monitor?.forget(id);
    await this.#app(id).stop();
    this.#apps.delete(id);
  }

  #emit(app: string, event: LiveEventBody): void {
    const happened: LiveEvent = { at: new Date().toISOString(), app, ...event };
    this.#metrics.record(happened);
    const audited = auditEntryOf(happened);
    if (audited !== undefined) this.#audit?.record(audited.entry, this.#apps.get(app)?.profile.audit, audited.kind);
    this.#events.emit("event", happened);
  }

  #app(id: string): LiveApp {
    const app = this.#apps.get(id);
    if (app !== undefined) return app;
    throw new SandboxError("not_found", `There is no app ${id}`, { suggestion: "`list` has the apps that exist." });
  }

  async #hostFor(level: IsolationLevel | "strongest", profile: SecurityProfile): Promise<AppHost> {
    const missing: string[] = [];
    for (const host of this.#hosts) {
      if (level !== "strongest" && host.level !== level) continue;
      const lacks = await missingFor(profile, host, level !== "strongest");
      if (lacks.length === 0) return host;
      missing.push(`${host.level}: ${lacks.join(", ")}`);
    }
    throw new SandboxError(
      "unsupported",
      `Cannot isolate an app at level ${level} with profile ${profile.name}: ${missing.join("; ") || "not set up"}`,
      {
        suggestion: "Install what is missing, or choose another level.",
      },
    );
  }
}

/** What can be made to fail: a service, a message of it by coming late, or the whole process. */
export type Fault =
  | { kind: "crash"; service: string }
  | { kind: "delay"; service: string; ms: number }
  | { kind: "kill" };

const byId = (ids: readonly string[]): { id: string }[] => ids.map((id) => ({ id }));

function changeOf({ files, sources, artifacts }: Omit<HotReload, "extra">): CodeChange {
  const given = [files, sources, artifacts].filter((each) => each !== undefined);
  if (given.length > 1) {
    throw new SandboxError("invalid_argument", "Cannot reload from files, sources and artifacts at once", {
      suggestion: "Give one of them.",
    });
  }
  if (artifacts !== undefined) return { artifacts };
  const wrong = [...(files ?? []), ...(sources?.keys() ?? [])].find((path) => !isModulePath(path));
  if (wrong !== undefined) {
    throw new SandboxError("invalid_argument", `Cannot reload ${JSON.stringify(wrong)}: it is no module of an app`, {
      suggestion: "Give paths of sources from the folder of the app, such as src/app.ts.",
    });
  }
  if (files !== undefined) return { paths: files };
  return sources === undefined ? {} : { sources };
}

const isModulePath = (path: string): boolean =>
  isModule(path) && !path.startsWith("/") && !path.split("/").includes("..") && !path.includes("\0");
