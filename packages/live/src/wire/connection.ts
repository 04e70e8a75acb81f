import { SandboxError, type ErrorCode } from "@atoll/protocol";
import type { AppProcess } from "../isolation/app-host.ts";
import { encodeFrame, FrameReader } from "./frames.ts";
import {
  FromRuntime,
  maxFrameBytes,
  requests,
  type Params,
  type Reply,
  type RequestName,
  type RuntimeError,
  type RuntimeErrorCode,
} from "./protocol.ts";

/** What the runtime reports by itself. */
export type RuntimeEvent = Exclude<FromRuntime, { t: "hello" | "reply" | "error" }>;

/** The code of the project's table for each failure of the runtime. */
const codes: Readonly<Record<RuntimeErrorCode, ErrorCode>> = {
  load_failed: "start_failed",
  not_found: "not_found",
  handler_failed: "handler_failed",
  timed_out: "timed_out",
  suspend_timeout: "timed_out",
  uncloneable_state: "unsaveable",
  migration_failed: "reload_failed",
  invalid_state: "reload_failed",
  start_failed: "start_failed",
  unknown_generation: "invalid_state",
  too_large: "limit_reached",
  mailbox_full: "limit_reached",
  permission_denied: "permission_denied",
};

/** A request that the runtime refused, with its code. */
export class RequestFailed extends SandboxError {
  readonly error: RuntimeError;

  constructor(error: RuntimeError) {
    const { code, message, service, stack } = error;
    super(codes[code], message, { details: { failure: code, ...(service === undefined ? {} : { service }) } });
    this.error = error;
    // The stack of the app's own code says more than that of this connection.
    if (stack !== undefined) this.stack = stack;
  }
}

interface Pending {
  name: RequestName;
  resolve: (reply: never) => void;
  reject: (error: unknown) => void;
}

/**
 * The host's end of the wire protocol. The process is killed when it says what is not understood; every request that
 * waits is rejected when the process ends.
 */
export class Connection {
  readonly hello: Promise<Extract<FromRuntime, { t: "hello" }>>;
  readonly #process: AppProcess;
  readonly #onEvent: (event: RuntimeEvent) => void;
  readonly #mapStack: (stack: string) => string;
  readonly #pending = new Map<number, Pending>();
  #lastRequest = 0;
  #ended: SandboxError | undefined;
  #greet: (hello: Extract<FromRuntime, { t: "hello" }>) => void = () => undefined;
  #refuse: (error: unknown) => void = () => undefined;

  /** `mapStack` turns the places in stacks into those of the sources. */
  constructor(
    process: AppProcess,
    onEvent: (event: RuntimeEvent) => void,
    mapStack: (stack: string) => string = (stack) => stack,
  ) {
    this.#process = process;
    this.#mapStack = mapStack;
    this.#onEvent = onEvent;
    this.hello = new Promise((resolve, reject) => {
      this.#greet = resolve;
      this.#refuse = reject;
    });
    this.hello.catch(() => undefined);
    void this.#read();
  }

  /** Why no more requests are answered, once that is so. */
  get failure(): SandboxError | undefined {
    return this.#ended;
  }

  /** Rejects with `RequestFailed` if the runtime refuses, and with `timed_out` if it does not answer. */
  async request<N extends RequestName>(name: N, params: Params<N>, timeoutMs: number): Promise<Reply<N>> {
    if (this.#ended !== undefined) throw this.#ended;
    const n = ++this.#lastRequest;
    let timer: NodeJS.Timeout | undefined;
    const answer = new Promise<Reply<N>>((resolve, reject) => {
      this.#pending.set(n, { name, resolve: resolve, reject });
      timer = setTimeout(() => {
        reject(new SandboxError("timed_out", `Cannot ${name}: the app did not answer within ${timeoutMs} ms`));
      }, timeoutMs);
    });
    // The answer may come, or the process end, while the request is still being written.
    answer.catch(() => undefined);
    try {
      await this.#process.write(encodeFrame({ n, t: name, params }, maxFrameBytes));
      return await answer;
    } finally {
      clearTimeout(timer);
      this.#pending.delete(n);
    }
  }

  async #read(): Promise<void> {
    const reader = new FrameReader(maxFrameBytes);
    try {
      for await (const chunk of this.#process.output) {
        for (const message of reader.push(chunk)) this.#handle(FromRuntime.parse(message));
      }
      this.#fail(new SandboxError("sandbox_ended", "The app has ended"));
    } catch (cause) {
      this.#fail(
        new SandboxError("guest_violation", "The app sent a message that is not understood, and was ended", { cause }),
      );
      await this.#process.kill();
    }
  }

  #handle(message: FromRuntime): void {
    switch (message.t) {
      case "hello":
        this.#greet(message);
        return;
      case "reply": {
        const pending = this.#pending.get(message.re);
        pending?.resolve(requests[pending.name].reply.parse(message.ok) as never);
        return;
      }
      case "error":
        this.#pending.get(message.re)?.reject(new RequestFailed(this.#withSources(message.error)));
        return;
      case "log":
        this.#onEvent({ ...message, text: this.#mapStack(message.text) });
        return;
      case "crash":
        this.#onEvent(this.#withSources(message));
        return;
      case "started":
      case "stopped":
      case "denied":
      case "ended":
        this.#onEvent(message);
    }
  }

  #withSources<T extends { stack?: string | undefined }>(reported: T): T {
    return reported.stack === undefined ? reported : { ...reported, stack: this.#mapStack(reported.stack) };
  }

  #fail(error: SandboxError): void {
    this.#ended = error;
    this.#refuse(error);
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}
