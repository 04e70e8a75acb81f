import { join } from "node:path";
import { AuditLog, Sampler, ServerSecret } from "@atoll/guard";
import { messageOf } from "@atoll/host";
import { BubblewrapHost, LiveManager, ProcessHost, RequestFailed, type LiveEvent } from "@atoll/live";
import { SandboxError } from "@atoll/protocol";
import type { Cli } from "../cli.ts";
import { AppLog } from "./app-log.ts";
import { AppRecords, firstInfo, leftBehind, type AppRecord } from "./app-records.ts";
import type { AppDetails, AppReplies, AppRequest, KnownApp } from "./app-requests.ts";
import { plainValue } from "./plain-value.ts";
import { ServerHost } from "./server-host.ts";

type Asked<Method extends AppRequest["method"]> = Extract<AppRequest, { method: Method }>;

/** The time between two samples of an app, and how many are kept: half an hour of them. */
const samples = { intervalMs: 5_000, keep: 360 };

/** The apps of a manager: those that run, with their records and logs, and those that an earlier manager left. */
export class KeptApps implements AsyncDisposable {
  readonly #directory: string;
  readonly #records: AppRecords;
  readonly #server: ServerHost;
  readonly #audit: AuditLog;
  readonly #sampler = new Sampler(samples);
  readonly #manager: LiveManager;
  readonly #logs = new Map<string, AppLog>();
  /** Changes of each app's record, one after the other. */
  readonly #writing = new Map<string, Promise<void>>();

  /** The directory has the secret that proves who wrote the audit log beside it. */
  static async open(directory: string, cli: Pick<Cli, "environment" | "signal">): Promise<KeptApps> {
    return new KeptApps(directory, cli, await ServerSecret.load(directory));
  }

  private constructor(directory: string, cli: Pick<Cli, "environment" | "signal">, secret: ServerSecret) {
    this.#directory = directory;
    this.#records = new AppRecords(directory);
    this.#server = new ServerHost(cli);
    this.#audit = new AuditLog(join(directory, "audit"), { key: secret.keyFor("audit log") });
    this.#manager = new LiveManager({
      hosts: [this.#server, new BubblewrapHost(), new ProcessHost()],
      stateDir: join(directory, "versions"),
      audit: this.#audit,
      monitor: this.#sampler,
    });
    this.#manager.onEvent((event) => this.#take(event));
  }

  get areRunning(): boolean {
    return this.#manager.list().length > 0;
  }

  onEvent(listener: (event: LiveEvent) => void): () => void {
    return this.#manager.onEvent(listener);
  }

  async assertKnown(ids: readonly string[]): Promise<void> {
    for (const id of ids) if ((await this.#records.read(id)) === undefined) throw unknownApp(id);
  }

  async flushLogs(): Promise<void> {
    await Promise.all([...this.#logs.values()].map((log) => log.flush()));
  }

  async handle(request: Exclude<AppRequest, { method: "watch" }>): Promise<AppReplies[AppRequest["method"]]> {
    switch (request.method) {
      case "create":
        return this.#create(request);
      case "start":
        return this.#start(request);
      case "list":
        return this.#list();
      case "remove":
        return this.#remove(request.id);
      case "inspect":
        return this.#inspect(request.id);
      case "reload":
        await this.#assertHere(request.id);
        return this.#manager.hotReload(request.id);
      case "rollback":
        await this.#assertHere(request.id);
        return this.#manager.rollback(request.id, request.target ?? this.#before(request.id));
      case "versions":
        await this.#assertHere(request.id);
        return this.#manager.listVersions(request.id);
      case "history":
        await this.#assertHere(request.id);
        return this.#manager.history(request.id, request.module);
      case "diff": {
        const { id, module, from, to } = request;
        await this.#assertHere(id);
        return this.#manager.diff(id, { from, to, ...(module === undefined ? {} : { module }) });
      }
      case "call":
        return this.#call(request);
    }
  }

  /** Ends all apps; their records say that they were stopped. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#manager[Symbol.asyncDispose]();
    this.#sampler.close();
    this.#audit.close();
    await this.flushLogs();
    await Promise.all(this.#writing.values());
  }

  async #create({ id, folder, options, server }: Asked<"create">): Promise<AppReplies["create"]> {
    const known = await this.#records.read(id);
    if (known !== undefined) {
      throw new SandboxError("already_exists", `Cannot create app ${id}: there is one of this name`, {
        suggestion: `Choose another name with --id, start it with "atoll app start ${id}", or remove it first.`,
      });
    }
    this.#server.use(server);
    await this.#records.write({ format: 1, folder, options, info: firstInfo(id, folder) });
    try {
      await this.#manager.create(id, folder, options);
    } catch (error) {
      // What is not even an app leaves nothing. One that cannot start stays with its reason.
      if (!this.#isHere(id)) await this.#records.remove(id);
      throw error;
    }
    return this.#started(id);
  }

  /** Starts an app that does not run, with the code that ran last. */
  async #start({ id, generation, server }: Asked<"start">): Promise<AppReplies["start"]> {
    const record = await this.#known(id);
    this.#server.use(server);
    const { folder, options, info } = record;
    const hasRun = info.generation > 0;
    if (generation !== undefined || hasRun) {
      // The level of isolation is the one that it had.
      const level = hasRun ? { isolation: info.isolation } : {};
      await this.#manager.resume(id, folder, { ...options, ...level }, generation);
    } else {
      await this.#manager.create(id, folder, options);
    }
    return this.#started(id);
  }

  #started(id: string): AppReplies["create"] {
    const app = this.#manager.get(id);
    const note = app.isolation === "gvisor" ? this.#server.note : undefined;
    return { app, ...(note === undefined ? {} : { note }) };
  }

  async #list(): Promise<KnownApp[]> {
    const records = await this.#records.list();
    return records.map((record) => this.#shown(record));
  }

  async #inspect(id: string): Promise<AppDetails> {
    const app = this.#shown(await this.#known(id));
    if (!this.#isHere(id) || app.state !== "running") return { app };
    try {
      const [{ services }, usage] = await Promise.all([this.#manager.inspect(id), this.#manager.resourceUsage(id)]);
      return { app, running: { services, ...usage } };
    } catch (error) {
      // A handler that blocks the app blocks its answer to this, too. What else is known is shown.
      return { app: { ...app, reason: `it does not answer: ${messageOf(error)}` } };
    }
  }

  async #call({ id, service, name, argument, timeoutMs, isCast }: Asked<"call">): Promise<AppReplies["call"]> {
    await this.#assertHere(id);
    try {
      if (!isCast) return { value: plainValue(await this.#manager.call(id, service, name, argument, timeoutMs)) };
      await this.#manager.cast(id, service, name, argument);
      return { value: null };
    } catch (error) {
      if (!(error instanceof RequestFailed)) throw error;
      const isUnknown = error.code === "not_found";
      const what = `${isCast ? "cast" : "call"} ${service}.${name} of app ${id}`;
      throw new SandboxError(error.code, `Cannot ${what}: ${error.message}`, {
        ...(isUnknown ? { suggestion: `"atoll app info ${id}" lists its services.` } : {}),
        cause: error,
      });
    }
  }

  /** Ends an app and removes everything of it. */
  async #remove(id: string): Promise<null> {
    // A record that cannot be read can be removed, too.
    const record = await this.#records.read(id).catch(() => ({ folder: undefined }));
    if (record === undefined) throw unknownApp(id);
    if (this.#isHere(id)) await this.#manager.destroy(id);
    else if (record.folder !== undefined) await this.#manager.forget(id, record.folder);
    await this.#writing.get(id);
    this.#writing.delete(id);
    await this.#log(id).remove();
    this.#logs.delete(id);
    await this.#records.remove(id);
    return null;
  }

  /** The generation that ran before the current one. */
  #before(id: string): { generation: number } {
    const versions = this.#manager.listVersions(id);
    const current = versions.find(({ isCurrent }) => isCurrent)?.number ?? 0;
    const before = versions.find(({ number, failure }) => number < current && failure === undefined);
    if (before !== undefined) return { generation: before.number };
    throw new SandboxError("invalid_state", `Cannot roll back ${id}: there is no generation before ${current}`, {
      suggestion: `"atoll app versions ${id}" lists those that are kept.`,
    });
  }

  #take(event: LiveEvent): void {
    const { app: id, type } = event;
    if (type === "app.destroy") return;
    this.#log(id).take(event);
    if (["app.state", "reload.end", "reload.settle", "rollback"].includes(type)) this.#store(id);
  }

  /** Stores what is known about an app now. */
  #store(id: string): void {
    const info = this.#manager.list().find((app) => app.id === id);
    if (info === undefined) return;
    const write = async (): Promise<void> => {
      const record = await this.#records.read(id);
      if (record !== undefined) await this.#records.write({ ...record, info });
    };
    const before = this.#writing.get(id) ?? Promise.resolve();
    // A full disk makes what is shown after a crash older than it could be; the app goes on.
    this.#writing.set(
      id,
      before.then(write).catch(() => undefined),
    );
  }

  #log(id: string): AppLog {
    const log = this.#logs.get(id) ?? new AppLog(this.#directory, id);
    this.#logs.set(id, log);
    return log;
  }

  #isHere(id: string): boolean {
    return this.#manager.list().some((app) => app.id === id);
  }

  #shown(record: AppRecord): KnownApp {
    const { id } = record.info;
    return this.#isHere(id) ? this.#manager.get(id) : leftBehind(record);
  }

  async #known(id: string): Promise<AppRecord> {
    const record = await this.#records.read(id);
    if (record === undefined) throw unknownApp(id);
    return record;
  }

  async #assertHere(id: string): Promise<void> {
    if (this.#isHere(id)) return;
    const { state, reason } = leftBehind(await this.#known(id));
    const because = reason === undefined ? "" : `: ${reason}`;
    throw new SandboxError("invalid_state", `Cannot use app ${id}: it is ${state}${because}`, {
      suggestion: `"atoll app start ${id}" starts it with the code that ran last.`,
    });
  }
}

const unknownApp = (id: string): SandboxError =>
  new SandboxError("not_found", `There is no app ${id}`, { suggestion: `"atoll app ls" lists the apps.` });
