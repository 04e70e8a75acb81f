import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, open } from "node:fs/promises";
import { createConnection, type Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { hasErrno, pollUntil } from "@atoll/host";
import type { LiveEvent } from "@atoll/live";
import { errorCodes, isSandboxError, SandboxError, type ErrorCode } from "@atoll/protocol";
import type { Cli } from "../cli.ts";
import { socketAddress, socketName } from "../host/server-keeper.ts";
import { failureOfKeeper, startKeeper } from "../host/start-keeper.ts";
import type { AppFailure, AppLine, AppReplies, AppRequest } from "./app-requests.ts";

/** A manager that has the lock and no socket starts or ends. */
const otherManagerMs = 10_000;
const startDeadlineMs = 60_000;

type RequestOf<Method extends AppRequest["method"]> = Omit<Extract<AppRequest, { method: Method }>, "method">;

/** The apps of this user, in a manager that outlives the command. It is started when a command needs it. */
export class AppClient {
  readonly directory: string;
  readonly #signal: AbortSignal;

  constructor(cli: Pick<Cli, "environment" | "signal">) {
    this.directory = join(cli.environment.stateDirectory, "apps");
    this.#signal = cli.signal;
  }

  /** Asks the manager, which is started if it does not run. */
  async ask<Method extends Exclude<AppRequest["method"], "watch">>(
    method: Method,
    request: RequestOf<Method>,
  ): Promise<AppReplies[Method]> {
    return this.#answer(await this.#open(), method, request);
  }

  /** Asks the manager, or returns `undefined` if none runs. */
  async askIfRunning<Method extends Exclude<AppRequest["method"], "watch">>(
    method: Method,
    request: RequestOf<Method>,
  ): Promise<AppReplies[Method] | undefined> {
    const socket = await this.#connect();
    return socket === undefined ? undefined : this.#answer(socket, method, request);
  }

  /** Events of these apps, or of all; `undefined` stands for the moment from which none is missing. */
  async *watch(ids: readonly string[]): AsyncGenerator<LiveEvent | undefined, void, undefined> {
    for await (const line of this.#lines(await this.#open(), { method: "watch", ids: [...ids] })) {
      if ("event" in line) yield line.event;
      else if ("isReady" in line) yield undefined;
      else if ("error" in line) throw errorOf(line.error);
    }
  }

  async #answer<Method extends AppRequest["method"]>(
    socket: Socket,
    method: Method,
    request: RequestOf<Method>,
  ): Promise<AppReplies[Method]> {
    for await (const line of this.#lines(socket, { method, ...request } as AppRequest)) {
      if ("error" in line) throw errorOf(line.error);
      if ("result" in line) return line.result as AppReplies[Method];
    }
    throw new SandboxError("unavailable", "Cannot get an answer: the manager of apps has ended", {
      suggestion: `"atoll app ls" shows what is left.`,
    });
  }

  async *#lines(socket: Socket, request: AppRequest): AsyncGenerator<AppLine, void, undefined> {
    const leave = (): void => void socket.destroy();
    this.#signal.addEventListener("abort", leave, { once: true });
    // How it ended does not matter: a last line was read, or it is missing.
    socket.on("error", leave);
    try {
      socket.write(`${JSON.stringify(request)}\n`);
      for await (const text of createInterface({ input: socket })) yield JSON.parse(text) as AppLine;
      this.#signal.throwIfAborted();
    } finally {
      this.#signal.removeEventListener("abort", leave);
      socket.destroy();
    }
  }

  async #open(): Promise<Socket> {
    const endsAtMs = performance.now() + startDeadlineMs;
    for (;;) {
      this.#signal.throwIfAborted();
      const socket = await this.#connect();
      if (socket !== undefined) return socket;
      await mkdir(this.directory, { recursive: true, mode: 0o700 });
      const lock = join(this.directory, "lock");
      const word = await startKeeper("keep-apps", this.directory, { signal: this.#signal, lock });
      if ("ready" in word) continue;
      const error = failureOfKeeper(word);
      if (!isSandboxError(error, "in_use") || performance.now() > endsAtMs) throw error;
      const path = join(this.directory, socketName);
      await pollUntil(() => existsSync(path), { deadlineMs: otherManagerMs, signal: this.#signal });
    }
  }

  /** `undefined`: no manager runs. */
  async #connect(): Promise<Socket | undefined> {
    try {
      const opened = await open(this.directory, "r");
      try {
        const socket = createConnection(socketAddress(opened));
        await once(socket, "connect");
        return socket;
      } finally {
        await opened.close();
      }
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ECONNREFUSED", "ECONNRESET")) return undefined;
      throw error;
    }
  }
}

function errorOf({ code, message, suggestion, details = {} }: AppFailure): SandboxError {
  const known: ErrorCode = code in errorCodes ? (code as ErrorCode) : "internal";
  return new SandboxError(known, message, {
    ...(suggestion === undefined ? {} : { suggestion }),
    details,
  });
}
