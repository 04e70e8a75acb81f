import type { OutputEvent } from "@atoll/host";
import { SandboxError, type SignalName } from "@atoll/protocol";
import { encodeFrame, protocolConstants, toGuest } from "./frames.ts";
import { InputWindow, type InputPosition } from "./input-window.ts";
import type { ExitReport, GuestMessage, StreamEntry } from "./messages.ts";
import { OutputQueue } from "./output-queue.ts";
import { encodeSignal } from "./requests.ts";
import { MalformedPayload, PayloadWriter } from "./wire.ts";

/** The output that a reader has stored for good, per output. */
export interface OutputPosition {
  stdoutBytes: number;
  stderrBytes: number;
}

/** Throws `invalid_argument` unless the guest has all output of the stream from there on. */
export function assertBuffered(
  { id, ackedAt, producedAt }: StreamEntry,
  { stdoutBytes, stderrBytes }: OutputPosition,
): void {
  const at = stdoutBytes + stderrBytes;
  if (at >= ackedAt && at <= producedAt) return;
  const what = `Cannot attach to process ${id} at byte ${at}: the guest has only bytes ${ackedAt} to ${producedAt}`;
  throw new SandboxError("invalid_argument", what);
}

export interface StreamOptions {
  id: number;
  kind: "process" | "connection";
  windowBytes: number;
  /** The position where output begins: all zero for a new stream. */
  from: OutputPosition;
  input: InputPosition;
  /** `onTaken` is called when the frame has left this process. */
  send: (frame: Buffer, onTaken?: () => void) => void;
  /** Called once, when nothing more can happen on this stream. */
  forget: () => void;
}

export type StreamStart = Partial<Pick<StreamOptions, "windowBytes" | "from" | "input">>;

/** The defaults of a new stream. */
export const newStream = {
  windowBytes: protocolConstants.WINDOW_DEFAULT,
  from: { stdoutBytes: 0, stderrBytes: 0 },
  input: { receivedOffset: 0, handedOnOffset: 0 },
};

/** One stream as the host sees it: order and windows are checked here, for processes and connections alike. */
export class GuestStream {
  readonly id: number;
  readonly output: OutputQueue;
  readonly input: InputWindow;
  readonly started: Promise<number>;
  readonly ended: Promise<ExitReport>;
  #options: StreamOptions;
  #offsets: OutputPosition;
  #onStarted!: (pid: number) => void;
  #onStartFailed!: (error: unknown) => void;
  #onEnded!: (exit: ExitReport) => void;
  #onEndUnknown!: (error: unknown) => void;
  #exit: ExitReport | undefined;
  #outputEnded = false;
  #isReleased = false;

  constructor(options: StreamOptions) {
    this.id = options.id;
    this.#options = options;
    this.#offsets = { ...options.from };
    const at = options.from.stdoutBytes + options.from.stderrBytes;
    this.output = new OutputQueue(at, options.windowBytes, (acked) => {
      this.#sendOffset(toGuest.ACK, acked);
    });
    this.input = new InputWindow(options.id, options.input, options.send);
    this.started = new Promise((resolve, reject) => {
      this.#onStarted = resolve;
      this.#onStartFailed = reject;
    });
    this.ended = new Promise((resolve, reject) => {
      this.#onEnded = resolve;
      this.#onEndUnknown = reject;
    });
    // No caller has to await these: the others get the failure from their own calls.
    this.started.catch(() => undefined);
    this.ended.catch(() => undefined);
  }

  get exit(): ExitReport | undefined {
    return this.#exit;
  }

  /** Takes one message of this stream. Throws `MalformedPayload` when it contradicts an earlier one. */
  take(message: GuestMessage): void {
    switch (message.type) {
      case "started":
        return this.#onStarted(message.pid);
      case "output":
        return this.#takeOutput(message.output, message.at, message.offset, message.data);
      case "stdinAck":
        this.#checkInputOffset(message.offset);
        return this.input.acknowledge(message.offset);
      case "stdinClosed":
        this.#checkInputOffset(message.offset);
        this.input.acknowledge(message.offset);
        return this.input.close("the reader closed its end");
      case "exit":
        return this.#takeExit(message.exit);
      case "end":
        return this.#takeEnd(message.at);
      case "welcome":
      case "failed":
      case "connect":
      case "done":
      case "counted":
      case "heldBy":
      case "nodes":
      case "ready":
      case "pong":
        throw new MalformedPayload(`A stream cannot get "${message.type}"`);
    }
  }

  /** Called when the guest could not start the stream. */
  refuse(error: unknown): void {
    this.#onStartFailed(error);
    this.fail(error);
    this.#options.forget();
  }

  /**
   * Called when the sandbox or the channel has ended: what has arrived stays readable, but the end of the stream cannot
   * be known any more.
   */
  fail(error: unknown): void {
    this.#onStartFailed(error);
    this.#failEnd(error);
    this.input.close("the sandbox is gone");
  }

  /**
   * Continues after a greeting: requests the output that has not arrived here, and sends the input that the guest has
   * not received.
   */
  reattach(entry: StreamEntry): void {
    // The message that said so may have been dropped by the greeting.
    this.#onStarted(entry.pid);
    this.#sendOffset(toGuest.ATTACH, this.output.receivedAt);
    // The guest may have a full window that was taken before, and would wait for ever.
    this.output.acknowledgeTaken(entry.ackedAt);
    if (entry.inputClosed) this.input.close("the reader closed its end");
    else this.input.resend({ receivedOffset: entry.inputReceived, handedOnOffset: entry.inputHandedOn });
  }

  /** Signals a process while it lives. SIGKILL also reaches what has left the process group. */
  signal(name: SignalName): void {
    if (this.#options.kind !== "process" || this.#exit !== undefined) return;
    this.#options.send(encodeSignal(this.id, name));
  }

  /** Ends the stream for this host: callers that still wait for its output or its end get an error. */
  release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#options.send(encodeFrame(toGuest.RELEASE, this.id));
    this.#failEnd(new SandboxError("invalid_state", `Cannot follow stream ${this.id}: it was released`));
    this.input.close("the stream was released");
    this.#options.forget();
  }

  /** Abandons the stream, whether or not the guest has started it. */
  abandon(reason: unknown): void {
    this.fail(reason);
    this.signal("SIGKILL");
    this.release();
  }

  #failEnd(error: unknown): void {
    if (this.#exit !== undefined) return;
    this.output.fail(error);
    this.#onEndUnknown(error);
  }

  #takeOutput(output: 1 | 2, at: number, offset: number, data: Buffer): void {
    const key = output === 1 ? "stdoutBytes" : "stderrBytes";
    if (output === 2 && this.#options.kind === "connection") {
      throw new MalformedPayload(`Connection ${this.id} has one output`);
    }
    if (at !== this.output.receivedAt || offset !== this.#offsets[key] || this.#outputEnded) {
      throw new MalformedPayload(`Output at ${at} of stream ${this.id} does not continue what came before`);
    }
    if (this.output.exceedsWindow(data.byteLength)) {
      throw new MalformedPayload(`Stream ${this.id} sent more than its window`);
    }
    this.#offsets[key] += data.byteLength;
    const event: OutputEvent = { stream: output === 1 ? "stdout" : "stderr", data, offset, at };
    this.output.push(event);
  }

  #takeExit(exit: ExitReport): void {
    if (this.#options.kind === "connection") throw new MalformedPayload(`Connection ${this.id} cannot exit`);
    if (this.#exit !== undefined) {
      if (exit.exitCode === this.#exit.exitCode && exit.signal === this.#exit.signal) return;
      throw new MalformedPayload(`Stream ${this.id} ended twice`);
    }
    if (exit.at > this.output.receivedAt) throw new MalformedPayload(`Stream ${this.id} ended before its output`);
    this.#exit = exit;
    this.input.close("the process has ended");
    this.#onEnded(exit);
  }

  #takeEnd(at: number): void {
    if (at !== this.output.receivedAt) throw new MalformedPayload(`Stream ${this.id} ends where no output ended`);
    this.#outputEnded = true;
    // The output of a connection ends with END, that of a process with its exit.
    if (this.#options.kind === "connection") this.output.finish();
  }

  #checkInputOffset(offset: number): void {
    if (offset > this.input.sentOffset) throw new MalformedPayload(`Stream ${this.id} took input that was never sent`);
  }

  #sendOffset(type: typeof toGuest.ACK | typeof toGuest.ATTACH, at: number): void {
    if (this.#isReleased) return;
    this.#options.send(encodeFrame(type, this.id, new PayloadWriter().u64(at).finish()));
  }
}
