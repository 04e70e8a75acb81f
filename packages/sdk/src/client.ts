import type { ApiEvent, routes, RunContent, RunOnceInput, SandboxInfo } from "@atoll/protocol";
import type { z } from "zod";
import { Audit } from "./audit.ts";
import type { FollowOptions } from "./commands/command-handle.ts";
import type { CommandResult } from "./commands/command-result.ts";
import { ForegroundRun } from "./commands/foreground.ts";
import { resolveConnection, type Connection, type ConnectionOptions } from "./connection-options.ts";
import { CommandExitError } from "./errors.ts";
import { followEvents, type EventOptions } from "./events.ts";
import { toBase64 } from "./http/base64.ts";
import { Http } from "./http/http.ts";
import { Keys } from "./keys.ts";
import { Profiles } from "./profiles.ts";
import { Snapshots } from "./snapshots.ts";
import { Socket } from "./socket/socket.ts";
import { Templates } from "./templates.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

export interface RunOnceOptions extends Omit<RunOnceInput, "files" | "stdin">, FollowOptions, SignalOption {
  /** The files that are written into the home directory before the run. */
  files?: Record<string, string | Uint8Array> | undefined;
  /** All of the input, at most 16 MiB. */
  stdin?: string | Uint8Array | undefined;
  /** Whether an exit code other than 0 throws `CommandExitError`. */
  check?: boolean | undefined;
}

export interface ListOptions extends SignalOption {
  state?: SandboxInfo["state"] | undefined;
  /** The labels that a sandbox must have, all of them. */
  labels?: Record<string, string> | undefined;
  /** How many sandboxes each request asks for. */
  pageSize?: number | undefined;
}

/**
 * A connection to one server, with what concerns the server as a whole. `Sandbox.create` and similar functions make one
 * by themselves; make one yourself for keys, templates, snapshots and events, or to choose when its socket is closed.
 *
 * @example
 * await using atoll = new Atoll();
 * console.log(await atoll.isReady()); // true
 */
export class Atoll {
  readonly connection: Connection;
  readonly http: Http;
  readonly socket: Socket;
  readonly audit: Audit;
  readonly keys: Keys;
  readonly profiles: Profiles;
  readonly snapshots: Snapshots;
  readonly templates: Templates;

  constructor(options: ConnectionOptions = {}) {
    this.connection = resolveConnection(options);
    this.http = new Http(this.connection);
    this.socket = new Socket(this.connection);
    this.audit = new Audit(this.http);
    this.keys = new Keys(this.http);
    this.profiles = new Profiles(this.http);
    this.snapshots = new Snapshots(this.http);
    this.templates = new Templates(this.http);
  }

  /**
   * Runs code in a sandbox that lives for this run only.
   *
   * @example
   * const { stdout } = await atoll.run({ language: "python", code: "print(6 * 7)" });
   * console.log(stdout.trim()); // 42
   */
  async run(options: RunOnceOptions): Promise<CommandResult> {
    const { onStdout, onStderr, onOutput, maxOutputBytes, signal, check, files = {}, stdin, ...given } = options;
    const body = {
      ...given,
      files: Object.fromEntries(Object.entries(files).map(([path, content]) => [path, contentOf(content)])),
      ...(stdin === undefined ? {} : { stdin: contentOf(stdin) }),
    };
    const follow = { onStdout, onStderr, onOutput, maxOutputBytes };
    const result = await new ForegroundRun(this, "runOnce", { body }, follow).result(signal);
    if (check === true && result.exitCode !== 0) throw new CommandExitError(result);
    return result;
  }

  /**
   * Yields the events of the server, in order. It goes on until the loop is left or the signal aborts; no event after
   * `cursor` is missing.
   *
   * @example
   * const sandbox = await Sandbox.create();
   * for await (const event of atoll.events({ cursor: 0, sandboxId: sandbox.id })) {
   *   if (event.type === "sandbox.state" && event.to === "running") break;
   * }
   */
  events(options: EventOptions = {}): AsyncGenerator<ApiEvent, void, undefined> {
    return followEvents(this.socket, options);
  }

  /**
   * Yields every sandbox that the key may see, and loads them page by page.
   *
   * @example
   * for await (const { id, state } of atoll.sandboxes({ labels: { team: "blue" } })) console.log(id, state);
   */
  async *sandboxes(options: ListOptions = {}): AsyncGenerator<SandboxInfo, void, undefined> {
    const { state, labels, pageSize, signal } = options;
    const label = Object.entries(labels ?? {}).map(([name, value]) => `${name}=${value}`);
    let cursor: string | undefined;
    do {
      const query = { state, label: label.length === 0 ? undefined : label.join(","), limit: pageSize, cursor };
      const page = await this.http.call("listSandboxes", { query, signal });
      yield* page.sandboxes;
      cursor = page.next;
    } while (cursor !== undefined);
  }

  /**
   * Returns the settings in force on the server, and where each comes from; for keys with the verb `admin`.
   *
   * @example
   * console.log(Object.keys(await atoll.getConfig()).length > 0); // true
   */
  async getConfig(options: SignalOption = {}): Promise<z.infer<typeof routes.showConfig.reply>> {
    return this.http.call("showConfig", options);
  }

  /**
   * Returns whether the server accepts work. Throws when it cannot be reached.
   *
   * @example
   * console.log(await atoll.isReady()); // true
   */
  async isReady(options: SignalOption = {}): Promise<boolean> {
    return (await this.http.call("readyz", options)).status === "ready";
  }

  /**
   * Closes the socket; streams that use it end with an error.
   *
   * @example
   * const short = new Atoll();
   * short.close();
   */
  close(): void {
    this.socket.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

function contentOf(content: string | Uint8Array): RunContent {
  return typeof content === "string" ? content : { base64: toBase64(content) };
}

const shared = new Map<string, Atoll>();

/** Returns the client for these options: one per server and identity, so that all callers share a socket. */
export function clientFor(options: ConnectionOptions & { client?: Atoll | undefined }): Atoll {
  if (options.client !== undefined) return options.client;
  if (options.fetch !== undefined || options.webSocket !== undefined) return new Atoll(options);
  const { baseUrl, apiKey, sandboxToken, holder, requestTimeoutMs, reconnectForMs } = resolveConnection(options);
  const name = JSON.stringify([baseUrl, apiKey, sandboxToken, holder, requestTimeoutMs, reconnectForMs]);
  let client = shared.get(name);
  if (client === undefined) {
    client = new Atoll(options);
    shared.set(name, client);
  }
  return client;
}

/**
 * Runs code in a sandbox that lives for this run only, on the server that the environment or the options name.
 *
 * @example
 * const { stdout } = await run({ language: "bash", code: "echo $((6 * 7))" });
 * console.log(stdout.trim()); // 42
 */
export async function run(
  options: RunOnceOptions & ConnectionOptions & { client?: Atoll | undefined },
): Promise<CommandResult> {
  const [connection, rest] = splitConnection(options);
  return clientFor(connection).run(rest);
}

type WithConnection = ConnectionOptions & { client?: Atoll | undefined };

/** Splits the options of the connection from those of the request. */
export function splitConnection<Options extends WithConnection>(
  options: Options,
): [WithConnection, Omit<Options, keyof WithConnection>] {
  const { client, apiKey, sandboxToken, baseUrl, holder, requestTimeoutMs, reconnectForMs, fetch, webSocket, ...rest } =
    options;
  return [{ client, apiKey, sandboxToken, baseUrl, holder, requestTimeoutMs, reconnectForMs, fetch, webSocket }, rest];
}
