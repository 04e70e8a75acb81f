import { AssertionError } from "node:assert";
import { mkdtempSync, rmSync } from "node:fs";
import { mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { SandboxError } from "@atoll/protocol";
import type { LiveEvent } from "../events/live-event.ts";
import type { AppConfigInput, AppInfo, ReloadResult } from "../manager/app-options.ts";
import { LiveManager, type LiveManagerOptions } from "../manager/live-manager.ts";
import { processesWith } from "./processes.ts";
import { stress, type StressOptions, type StressReport } from "./stress.ts";

export interface TestAppOptions {
  /** The beginning of the id, which is unique in any case. */
  name?: string;
  config?: AppConfigInput;
  /** Makes a manager for this app alone. Otherwise the apps that run at the same time share one. */
  manager?: LiveManagerOptions;
  /** The app is only prepared; `start` starts it, and may fail. */
  isStopped?: boolean;
}

export interface LeakOptions {
  /** The number of times that the work is done; 20 by default, after a fifth as many that do not count. */
  runs?: number;
  /** How much more memory the app may use afterwards; 1 MiB by default. */
  maxGrowthBytes?: number;
}

type EventOf<T extends LiveEvent["type"]> = Extract<LiveEvent, { type: T }>;

const waitMs = 60_000;

/** The manager that test apps of this process share, and how many use it. */
let shared: { manager: LiveManager; stateDir: string; users: number } | undefined;
let lastNumber = 0;
/** What a test process that ends early would leave behind. */
const temporary = new Set<string>();
process.on("exit", () => {
  for (const path of temporary) rmSync(path, { recursive: true, force: true });
});

/**
 * Starts an app for a test: of a folder, or of sources, which are put into a folder of their own. The id is unique, and
 * `await using`, or `stop` in the hook of a test runner, removes everything.
 */
export async function startTestApp(
  source: string | Readonly<Record<string, string>>,
  options: TestAppOptions = {},
): Promise<TestApp> {
  const app = await TestApp.prepare(source, options);
  if (options.isStopped === true) return app;
  try {
    await app.start();
    return app;
  } catch (error) {
    await app.stop();
    throw error;
  }
}

/** An app under test. Every wait has a deadline, and none of them sleeps. */
export class TestApp implements AsyncDisposable {
  readonly id: string;
  readonly folder: string;
  readonly manager: LiveManager;
  /** Everything that happened to this app. */
  readonly events: LiveEvent[] = [];
  readonly #config: AppConfigInput;
  readonly #ownsFolder: boolean;
  readonly #release: () => Promise<void>;
  readonly #unlisten: () => void;
  readonly #listeners = new Set<(event: LiveEvent) => void>();
  #stopping: Promise<void> | undefined;

  private constructor(
    parts: Pick<TestApp, "id" | "folder" | "manager">,
    config: AppConfigInput,
    ownsFolder: boolean,
    release: () => Promise<void>,
  ) {
    this.id = parts.id;
    this.folder = parts.folder;
    this.manager = parts.manager;
    this.#config = config;
    this.#ownsFolder = ownsFolder;
    this.#release = release;
    this.#unlisten = parts.manager.onEvent((event) => {
      if (event.app !== this.id) return;
      this.events.push(event);
      for (const listener of this.#listeners) listener(event);
    });
  }

  static async prepare(source: string | Readonly<Record<string, string>>, options: TestAppOptions): Promise<TestApp> {
    const id = `${options.name ?? "test"}-${process.pid}-${++lastNumber}`;
    const scratch = await realpath(await mkdtemp(join(tmpdir(), "atoll-live-test-")));
    temporary.add(scratch);
    const folder = typeof source === "string" ? resolve(source) : join(scratch, "app");
    const { manager, release } = managerFor(options.manager, join(scratch, "state"));
    const app = new TestApp({ id, folder, manager }, options.config ?? {}, typeof source !== "string", async () => {
      await release();
      await rm(scratch, { recursive: true, force: true });
      temporary.delete(scratch);
    });
    if (typeof source !== "string") for (const [path, text] of Object.entries(source)) await app.write(path, text);
    return app;
  }

  get info(): AppInfo {
    return this.manager.get(this.id);
  }

  start(): Promise<AppInfo> {
    return this.manager.create(this.id, this.folder, this.#config);
  }

  call(service: string, name: string, argument?: unknown, timeoutMs?: number): Promise<unknown> {
    return this.manager.call(this.id, service, name, argument, timeoutMs);
  }

  cast(service: string, name: string, argument?: unknown): Promise<void> {
    return this.manager.cast(this.id, service, name, argument);
  }

  /** Writes a source of an app that was started from sources. */
  async write(path: string, text: string): Promise<void> {
    if (!this.#ownsFolder) {
      throw new SandboxError("invalid_state", `Cannot write ${path}: ${this.folder} is not a copy for this test`, {
        suggestion: "Pass the text to `reload`, which leaves the files as they are.",
      });
    }
    await mkdir(dirname(join(this.folder, path)), { recursive: true });
    await writeFile(join(this.folder, path), text);
  }

  /** Reloads with changed sources, by module. An app that runs from a folder of yours leaves its files as they are. */
  async reload(sources: Readonly<Record<string, string>> = {}): Promise<ReloadResult> {
    if (!this.#ownsFolder) return this.manager.hotReload(this.id, { sources: new Map(Object.entries(sources)) });
    for (const [path, text] of Object.entries(sources)) await this.write(path, text);
    return this.manager.hotReload(this.id);
  }

  /** Resolves with the next event of a type that `matches`. Rejects after the deadline with what happened instead. */
  waitFor<T extends LiveEvent["type"]>(
    type: T,
    matches: (event: EventOf<T>) => boolean = () => true,
    timeoutMs = waitMs,
  ): Promise<EventOf<T>> {
    const isIt = (event: LiveEvent): event is EventOf<T> => event.type === type && matches(event as EventOf<T>);
    return this.#next(type, isIt, timeoutMs);
  }

  #next<E extends LiveEvent>(what: string, isIt: (event: LiveEvent) => event is E, timeoutMs: number): Promise<E> {
    const from = this.events.length;
    const found = new Promise<E>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#listeners.delete(listener);
        const since = this.events.slice(from).map((event) => event.type);
        const text = `Cannot see ${what} within ${timeoutMs} ms; there were: ${since.join(", ") || "no events"}`;
        reject(new SandboxError("timed_out", text));
      }, timeoutMs);
      const listener = (event: LiveEvent): void => {
        if (!isIt(event)) return;
        clearTimeout(timer);
        this.#listeners.delete(listener);
        resolve(event);
      };
      this.#listeners.add(listener);
    });
    // The caller may wait for something else first.
    found.catch(() => undefined);
    return found;
  }

  /** Resolves when the next compile has ended, whatever its result. */
  waitForCompile(timeoutMs?: number): Promise<EventOf<"compile.end">> {
    return this.waitFor("compile.end", undefined, timeoutMs);
  }

  /** Resolves when the app runs; rejects when it is in `error`. */
  async assertRunning(timeoutMs = waitMs): Promise<AppInfo> {
    const isSettled = (state: AppInfo["state"]): boolean => state === "running" || state === "error";
    if (!isSettled(this.info.state)) await this.waitFor("app.state", ({ state }) => isSettled(state), timeoutMs);
    const { state, reason } = this.info;
    if (state === "running") return this.info;
    throw failed(
      `${this.id} does not run: it is ${state}${reason === undefined ? "" : `: ${reason}`}`,
      state,
      "running",
    );
  }

  /**
   * Does something that makes the app reload, such as writing a file with `autoReload`, and resolves when new code
   * runs. Rejects when the reload fails, with the reason.
   */
  async assertReloaded(work: () => unknown, timeoutMs = waitMs): Promise<EventOf<"reload.end">> {
    // One wait for both: a second one that nothing ends would keep the program alive until its deadline.
    const ended = this.#next(
      "reload.end or reload.failed",
      (event): event is EventOf<"reload.end" | "reload.failed"> =>
        event.type === "reload.end" || event.type === "reload.failed",
      timeoutMs,
    );
    await work();
    const event = await ended;
    if (event.type === "reload.end") return event;
    const [diagnostic] = event.diagnostics;
    const frame = diagnostic?.frame ?? event.place?.frame ?? "";
    throw failed(
      `${this.id} was not reloaded (${event.phase}): ${event.reason}\n${frame}`.trimEnd(),
      event.type,
      "reload.end",
    );
  }

  /** Ends a service as an error in a handler does. Resolves when the crash was noticed. */
  async crash(service: string): Promise<EventOf<"service.crash">> {
    const crashed = this.waitFor("service.crash", (event) => event.service === service);
    await this.manager.injectFault(this.id, { kind: "crash", service });
    return crashed;
  }

  /** Makes the next message of a service be handled so much later. */
  delay(service: string, ms: number): Promise<void> {
    return this.manager.injectFault(this.id, { kind: "delay", service, ms });
  }

  /** Kills the process of the app. Resolves when that was noticed. */
  async kill(): Promise<EventOf<"process.end">> {
    const ended = this.waitFor("process.end");
    await this.manager.injectFault(this.id, { kind: "kill" });
    return ended;
  }

  stress(operations: Parameters<typeof stress>[0], options: StressOptions): Promise<StressReport> {
    return stress(operations, options);
  }

  /** Does something many times, and rejects if the app uses more memory of JavaScript afterwards. */
  async assertNoLeak(work: (run: number) => unknown, options: LeakOptions = {}): Promise<{ growthBytes: number }> {
    const { runs = 20, maxGrowthBytes = 1024 * 1024 } = options;
    const heap = async (): Promise<number> => (await this.manager.inspect(this.id, { collectGarbage: true })).heapBytes;
    const warmUp = Math.ceil(runs / 5);
    for (let run = 0; run < warmUp; run += 1) await work(run);
    const before = await heap();
    for (let run = warmUp; run < warmUp + runs; run += 1) await work(run);
    const growthBytes = (await heap()) - before;
    if (growthBytes <= maxGrowthBytes) return { growthBytes };
    throw failed(`${this.id} leaks: ${growthBytes} more bytes after ${runs} runs`, growthBytes, maxGrowthBytes);
  }

  /** Ends the app and removes everything of it. Rejects if a process of it is left. Idempotent. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    try {
      if (this.manager.list().some(({ id }) => id === this.id)) await this.manager.destroy(this.id);
      // A folder that others use, too, says nothing about whose process it is.
      const left = this.#ownsFolder ? await processesWith(this.folder) : [];
      if (left.length > 0) {
        throw failed(
          `${this.id} left processes: ${left.map(({ pid, command }) => `${pid} ${command}`).join("; ")}`,
          left,
          [],
        );
      }
    } finally {
      this.#unlisten();
      await this.#release();
    }
  }
}

/** A manager of its own, or the shared one, which ends with the last app that uses it. */
function managerFor(
  options: LiveManagerOptions | undefined,
  stateDir: string,
): { manager: LiveManager; release: () => Promise<void> } {
  if (options !== undefined) {
    const manager = new LiveManager({ stateDir, ...options });
    return { manager, release: async () => manager[Symbol.asyncDispose]() };
  }
  if (shared === undefined) {
    const ownState = mkdtempSync(join(tmpdir(), "atoll-live-test-"));
    temporary.add(ownState);
    shared = { manager: new LiveManager({ stateDir: ownState }), stateDir: ownState, users: 0 };
  }
  const mine = shared;
  mine.users += 1;
  const release = async (): Promise<void> => {
    mine.users -= 1;
    if (mine.users > 0) return;
    if (shared === mine) shared = undefined;
    await mine.manager[Symbol.asyncDispose]();
    await rm(mine.stateDir, { recursive: true, force: true });
    temporary.delete(mine.stateDir);
  };
  return { manager: mine.manager, release };
}

const failed = (message: string, actual: unknown, expected: unknown): AssertionError =>
  new AssertionError({ message, actual, expected, operator: "atoll" });
