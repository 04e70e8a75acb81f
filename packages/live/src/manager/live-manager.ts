import { EventEmitter } from "node:events";
import { readFile, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { hasErrno, messageOf } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import type { Sources } from "../compiler/app-sources.ts";
import { Compiler, type CompilerOptions } from "../compiler/compiler.ts";
import type { LiveEvent, LiveEventBody } from "../events/live-event.ts";
import type { AppHost, AppUsage, IsolationLevel } from "../isolation/app-host.ts";
import { BubblewrapHost } from "../isolation/bubblewrap-host.ts";
import { GvisorHost } from "../isolation/gvisor-host.ts";
import { ProcessHost } from "../isolation/process-host.ts";
import { AppVersions, type GenerationInfo, type ModuleDiff, type ModuleHistory } from "../versions/app-versions.ts";
import { defaultStateDir, VersionStore } from "../versions/version-store.ts";
import type { Reply } from "../wire/protocol.ts";
import type { RollbackTarget } from "./app-code.ts";
import { AppConfig, AppId, type AppConfigInput, type AppInfo, type ReloadResult } from "./app-options.ts";
import { AutoReload } from "./auto-reload.ts";
import { LiveApp } from "./live-app.ts";

const defaultTimeoutMs = 30_000;

export interface LiveManagerOptions {
  /** The levels of isolation that may be used, the strongest first. */
  hosts?: readonly AppHost[];
  compiler?: CompilerOptions;
  /** Where the versions of apps are stored; a folder of the user by default. */
  stateDir?: string;
}

/** Starts, reloads and ends live applications. Each has a queue of its own; none waits for another. */
export class LiveManager implements AsyncDisposable {
  readonly #apps = new Map<string, LiveApp>();
  readonly #hosts: readonly AppHost[];
  readonly #compiler: Compiler;
  readonly #stateDir: string;
  readonly #watchers = new Map<string, AutoReload>();
  readonly #events = new EventEmitter<{ event: [LiveEvent] }>();

  constructor(options: LiveManagerOptions = {}) {
    this.#hosts = options.hosts ?? [new GvisorHost(), new BubblewrapHost(), new ProcessHost()];
    this.#compiler = new Compiler(options.compiler);
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
    const known = this.#apps.get(AppId.parse(id));
    if (known !== undefined && !["stopped", "error"].includes(known.info.state)) {
      throw new SandboxError("already_exists", `Cannot create app ${id}: it exists and is ${known.info.state}`, {
        suggestion: "Choose another id, or destroy the app first.",
      });
    }
    if (known !== undefined) await this.#release(id);
    const path = resolve(folder);
    const own = await readConfig(path);
    const config = AppConfig.parse({ ...own, ...options, limits: { ...own.limits, ...options.limits } });
    const host = await this.#hostFor(config.isolation);
    const app = new LiveApp({
      id,
      folder: path,
      config,
      host,
      compiler: this.#compiler,
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
    await new VersionStore(this.#stateDir, AppId.parse(id), resolve(folder)).remove();
  }

  async restart(id: string): Promise<AppInfo> {
    const app = this.#app(id);
    await app.restart();
    return app.info;
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

  async run(
    id: string,
    work: { module: string; export: string; arguments?: readonly unknown[] },
    timeoutMs = defaultTimeoutMs,
  ): Promise<unknown> {
    return this.#app(id)
      .running()
      .run(work.module, work.export, work.arguments ?? [], timeoutMs);
  }

  /** Brings changed code into a running app: of its folder, or the given sources. */
  hotReload(id: string, options: { sources?: Sources; extra?: unknown } = {}): Promise<ReloadResult> {
    const { sources, extra } = options;
    return this.#app(id).reload(sources === undefined ? {} : { sources }, { cause: "request", extra });
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

  /** The services of an app, with their versions, mailboxes and restarts. */
  async inspect(id: string): Promise<Reply<"inspect">> {
    return this.#app(id).running().inspect();
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

  /** Ends all apps. Their versions stay on disk for a later manager. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#apps.keys()].map((id) => this.#release(id)));
    for (const host of this.#hosts) await host[Symbol.asyncDispose]();
    await this.#compiler[Symbol.asyncDispose]();
  }

  async #release(id: string): Promise<void> {
    this.disableAutoReload(id);
    await this.#app(id).stop();
    this.#apps.delete(id);
  }

  #emit(app: string, event: LiveEventBody): void {
    this.#events.emit("event", { at: new Date().toISOString(), app, ...event });
  }

  #app(id: string): LiveApp {
    const app = this.#apps.get(id);
    if (app !== undefined) return app;
    throw new SandboxError("not_found", `There is no app ${id}`, { suggestion: "`list` has the apps that exist." });
  }

  async #hostFor(level: IsolationLevel | "strongest"): Promise<AppHost> {
    const missing: string[] = [];
    for (const host of this.#hosts) {
      if (level !== "strongest" && host.level !== level) continue;
      const lacks = await host.missing(level !== "strongest");
      if (lacks.length === 0) return host;
      missing.push(`${host.level}: ${lacks.join(", ")}`);
    }
    throw new SandboxError(
      "unsupported",
      `Cannot isolate an app at level ${level}: ${missing.join("; ") || "not set up"}`,
      {
        suggestion: "Install what is missing, or choose another level.",
      },
    );
  }
}

/** `live.json` of an app, if there is one. */
async function readConfig(folder: string): Promise<AppConfigInput> {
  const isFolder = await stat(folder).then(
    (found) => found.isDirectory(),
    () => false,
  );
  if (!isFolder) throw new SandboxError("not_found", `Cannot find the folder ${folder} of the app`);
  const path = join(folder, "live.json");
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return {};
    throw error;
  }
  const parsed = AppConfig.safeParse(JSON.parse(text));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new SandboxError("invalid_argument", `Cannot read ${path}: ${issue?.path.join(".")}: ${issue?.message}`);
  }
  return JSON.parse(text) as AppConfigInput;
}
