import { randomBytes } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import { Answers } from "./answers.ts";
import type { AttachOptions, ChannelOptions } from "./channel-options.ts";
import { FrameDecoder } from "./decoder.ts";
import { EgressRelay } from "./egress-relay.ts";
import { refusal } from "./errno.ts";
import { encodeFrame, protocolConstants, toGuest, tornFramePadding, type ToGuestType } from "./frames.ts";
import { GuestConnection, type NetworkCount } from "./guest-connection.ts";
import { GuestLine } from "./guest-line.ts";
import { GuestProcess } from "./guest-process.ts";
import { GuestQuestions } from "./guest-questions.ts";
import {
  assertBuffered,
  newStream,
  GuestStream,
  type OutputPosition,
  type StreamOptions,
  type StreamStart,
} from "./guest-stream.ts";
import { GuestWatch } from "./guest-watch.ts";
import { assertSpeaksOurVersion, parseGuestFrame, type GuestMessage, type StreamEntry } from "./messages.ts";
import { encodeDial, encodeHello, encodeRestored, encodeSignal, encodeSpawn, type GuestSpawn } from "./requests.ts";
import { violation } from "./violation.ts";
import { MalformedPayload } from "./wire.ts";

/** Requests and streams share one sequence of ids; the greeting is the request without one. */
const greetingId = 0;

/**
 * The host end of one sandbox's stream of frames: any number of processes and connections at once. It does not own the
 * sandbox: closing it leaves everything inside running, and a new channel on the same FIFOs continues.
 */
export class GuestChannel extends GuestQuestions {
  /** Settles when the channel has ended: with the reason if it ended by itself, with `undefined` after `close`. */
  readonly closed: Promise<SandboxError | undefined>;
  #line: GuestLine;
  #explainEnd: ChannelOptions["explainEnd"];
  #decoder = new FrameDecoder(randomBytes(16));
  #streams = new Map<number, GuestStream>();
  #inherited = new Map<number, StreamEntry>();
  #answers = new Answers();
  #egress: EgressRelay;
  #network: NetworkCount;
  #watch: GuestWatch | undefined;
  #lastId = greetingId;
  #isGreeting = false;
  /**
   * Set while the guest is in a new container that may be removed again: if that container ends, the sandbox has not
   * ended, because it may continue in another one.
   */
  #move: { end?: { cause: Error | undefined } } | undefined;
  #end: { reason: SandboxError | undefined } | undefined;
  #onClosed!: (reason: SandboxError | undefined) => void;

  private constructor(options: ChannelOptions) {
    super();
    this.closed = new Promise((resolve) => {
      this.#onClosed = resolve;
    });
    this.#network = options.network ?? { sentBytes: 0, receivedBytes: 0 };
    const connect = (id: number): GuestConnection =>
      new GuestConnection(this.#addStream(id, "connection", {}), this.#network);
    this.#egress = new EgressRelay(options.onEgress, this.#send, connect);
    this.#explainEnd = options.explainEnd;
    if (options.watch !== undefined) this.#watch = new GuestWatch(options.watch, (signal) => this.ping(signal));
    this.#line = new GuestLine({
      traffic: options.traffic,
      onData: (chunk) => this.#receive(chunk),
      onEnd: (cause) => this.#takeEnd(cause),
      onFlood: () => this.#finish(violation("It does not read the answers that it gets")),
    });
    this.#line.open(options.paths);
  }

  /** Opens the FIFOs and greets the guest. Rejects with `signal.reason` when it does not answer in time. */
  static async open(options: ChannelOptions): Promise<GuestChannel> {
    const channel = new GuestChannel(options);
    try {
      if (!options.isFirstHost) channel.#send(tornFramePadding);
      await channel.greet(options.signal);
      return channel;
    } catch (error) {
      channel.close();
      throw error;
    }
  }

  get isOpen(): boolean {
    return this.#end === undefined;
  }

  /**
   * The error that requests to the guest get at once while it is silent; undefined if it answers, as far as is known.
   */
  get silence(): SandboxError | undefined {
    return this.#watch?.silence;
  }

  /** Processes that an earlier server started and that wait to be attached or released. */
  get inherited(): readonly StreamEntry[] {
    return [...this.#inherited.values()];
  }

  /** Says hello, also again on an open channel after `prepareCheckpoint`: every stream continues where it was. */
  async greet(signal: AbortSignal): Promise<void> {
    const nonce = randomBytes(16);
    this.#decoder.expectWelcome(nonce);
    this.#isGreeting = true;
    // A silent guest is greeted as well, until it answers.
    const message = await this.#ask(greetingId, encodeHello(nonce), signal, { isWatched: false });
    assertSpeaksOurVersion(message);
  }

  async spawn(spawn: GuestSpawn, options: AttachOptions = {}): Promise<GuestProcess> {
    const [stream, pid] = await this.#start(
      options.signal,
      () => {
        const id = options.streamId ?? this.#nextId();
        const frame = encodeSpawn(id, spawn);
        const stream = this.#addStream(id, "process", { windowBytes: spawn.windowBytes });
        if (!spawn.stdin && spawn.pty === undefined) stream.input.close("the process was started without stdin");
        this.#send(frame);
        return stream;
      },
      { mayRenumber: options.streamId === undefined, isPrompt: true },
    );
    // A tool that watches files has no output until a file changes.
    const isWaitedFor = spawn.tool === true && spawn.argv[0] !== "watch";
    if (isWaitedFor) this.#watch?.expectUntil(stream.ended, { onSilent: (error) => stream.fail(error) });
    return this.#process(stream, pid, options);
  }

  /** Takes over a process of an earlier server; output begins at `from`. */
  attach(id: number, from: OutputPosition, options: AttachOptions = {}): GuestProcess {
    this.#assertOpen();
    const entry = this.#inherited.get(id);
    if (entry === undefined) {
      throw new SandboxError("not_found", `Cannot attach to process ${id}: the sandbox has no such process`);
    }
    assertBuffered(entry, from);
    this.#inherited.delete(id);
    const stream = this.#addStream(id, "process", {
      windowBytes: protocolConstants.WINDOW_MAX,
      from,
      input: { receivedOffset: entry.inputReceived, handedOnOffset: entry.inputHandedOn },
    });
    stream.reattach(entry);
    return this.#process(stream, entry.pid, options);
  }

  /** Returns an id for `spawn` that no other stream gets. */
  reserveStreamId(): number {
    return this.#nextId();
  }

  /** Ends a process of an earlier server, with all its descendants. */
  killInherited(id: number): void {
    if (!this.#inherited.has(id)) return;
    this.#send(encodeSignal(id, "SIGKILL"));
    this.releaseInherited(id);
  }

  /** Lets the guest forget a process of an earlier server. One that still runs continues without a reader. */
  releaseInherited(id: number): void {
    if (this.#inherited.delete(id)) this.#send(encodeFrame(toGuest.RELEASE, id));
  }

  /** Connects to a port on the sandbox's loopback. */
  async dial(port: number, options: { family?: 4 | 6; signal: AbortSignal }): Promise<GuestConnection> {
    const [stream] = await this.#start(options.signal, () => {
      const id = this.#nextId();
      const windowBytes = protocolConstants.WINDOW_DEFAULT;
      const stream = this.#addStream(id, "connection", { windowBytes });
      this.#send(encodeDial(id, { port, family: options.family ?? 4, windowBytes }));
      return stream;
    });
    return new GuestConnection(stream, this.#network);
  }

  async ping(signal: AbortSignal): Promise<void> {
    const id = this.#nextId();
    await this.#ask(id, encodeFrame(toGuest.PING, id, randomBytes(8)), signal, { isWatched: false });
  }

  /** After this no frame comes from the guest, and none goes to it, until the next `greet`. */
  async prepareCheckpoint(signal: AbortSignal): Promise<void> {
    const ready = this.request(toGuest.PREPARE, Buffer.alloc(0), signal);
    this.#line.pause();
    await ready;
  }

  /** Closes the FIFOs of a prepared guest; its streams wait for `moveTo`. */
  leave(): void {
    this.#line.leave();
    this.#move = undefined;
  }

  /**
   * Continues with the same guest in another container. Until `commitMove`, it can leave that container again without
   * any effect.
   */
  async moveTo(options: Pick<ChannelOptions, "paths" | "signal" | "explainEnd">): Promise<void> {
    this.#assertOpen();
    this.#explainEnd = options.explainEnd;
    this.#move = {};
    this.#line.open(options.paths);
    await this.greet(options.signal);
  }

  /** From now on the end of the container is the end of the sandbox, also if the container has ended already. */
  commitMove(): void {
    const end = this.#move?.end;
    this.#move = undefined;
    if (end !== undefined) this.#takeEnd(end.cause);
  }

  async sendRestored(hostname: string, signal: AbortSignal): Promise<void> {
    const id = this.#nextId();
    await this.#ask(id, encodeRestored(id, randomBytes(32), hostname), signal);
  }

  /** Closes the channel. Everything inside continues. Idempotent. */
  close(): void {
    this.#finish(undefined);
  }

  protected request(type: ToGuestType, payload: Buffer, signal: AbortSignal): Promise<GuestMessage> {
    const id = this.#nextId();
    return this.#ask(id, encodeFrame(type, id, payload), signal);
  }

  #ask(id: number, frame: Buffer, signal: AbortSignal, { isWatched = true } = {}): Promise<GuestMessage> {
    this.#assertOpen();
    const watch = isWatched ? this.#watch : undefined;
    watch?.assertAnswers();
    const answer = this.#answers.expect(id, signal, watch);
    this.#send(frame);
    return answer;
  }

  /**
   * Waits until the guest has started what `ask` requests. After an abort nothing of it is left, whether or not the
   * guest answers.
   */
  async #start(
    signal: AbortSignal | undefined,
    ask: () => GuestStream,
    { mayRenumber = true, isPrompt = false } = {},
  ): Promise<[GuestStream, number]> {
    for (let refused = 0; ; refused += 1) {
      signal?.throwIfAborted();
      this.#watch?.assertAnswers();
      const stream = ask();
      const abort = (): void => stream.abandon(signal?.reason);
      signal?.addEventListener("abort", abort, { once: true });
      const done = this.#watch?.expect({ onSilent: (error) => stream.abandon(error), isPrompt });
      try {
        return [stream, await stream.started];
      } catch (error) {
        // An earlier server released the stream of this id, so the greeting does not list it, and its process still
        // runs.
        const isTaken = isSandboxError(error, "spawn_failed") && error.details["errno"] === "EEXIST";
        if (!isTaken || !mayRenumber || refused === protocolConstants.MAX_STREAMS) throw error;
      } finally {
        signal?.removeEventListener("abort", abort);
        done?.();
      }
    }
  }

  #process(stream: GuestStream, pid: number, options: AttachOptions): GuestProcess {
    const { keep = false, signal, overdue, ranOutOfMemory = async () => false } = options;
    if (overdue !== undefined) this.#watch?.expectUntil(stream.ended, overdue);
    return new GuestProcess(stream, { pid, send: this.#send, keep, signal, ranOutOfMemory });
  }

  #addStream(id: number, kind: StreamOptions["kind"], options: StreamStart): GuestStream {
    const forget = (): void => void this.#streams.delete(id);
    const stream = new GuestStream({ ...newStream, ...options, id, kind, send: this.#send, forget });
    this.#streams.set(id, stream);
    return stream;
  }

  #receive(chunk: Buffer): void {
    try {
      for (const frame of this.#decoder.push(chunk)) {
        if (this.#end !== undefined) return;
        this.#dispatch(parseGuestFrame(frame));
      }
    } catch (error) {
      if (!(error instanceof MalformedPayload)) throw error;
      this.#finish(violation(error.message));
    }
  }

  #dispatch(message: GuestMessage): void {
    switch (message.type) {
      case "welcome":
        return this.#takeWelcome(message);
      case "failed":
        return this.#takeFailure(message);
      case "connect":
        return this.#egress.take(message);
      case "done":
      case "counted":
      case "heldBy":
      case "nodes":
      case "ready":
      case "pong":
        return this.#answers.resolve(message.id, message);
      case "started":
      case "output":
      case "stdinAck":
      case "stdinClosed":
      case "exit":
      case "end":
        // A stream that was just released may still have frames in transit.
        return this.#streams.get(message.id)?.take(message);
    }
  }

  #takeWelcome(message: GuestMessage & { type: "welcome" }): void {
    if (!this.#isGreeting) throw new MalformedPayload("Unexpected welcome");
    this.#isGreeting = false;
    const entries = new Map(message.streams.map((entry) => [entry.id, entry]));
    if (entries.size !== message.streams.length) throw new MalformedPayload("Welcome lists a stream twice");
    for (const [id, stream] of this.#streams) {
      const entry = entries.get(id);
      if (entry === undefined && this.#line.isStartQueued(id)) continue;
      if (entry === undefined)
        stream.refuse(new SandboxError("not_found", `Cannot go on: the guest lost stream ${id}`));
      else stream.reattach(entry);
      entries.delete(id);
    }
    this.#egress.abandonRequests();
    this.#inherited.clear();
    for (const [id, entry] of entries) {
      if (id < protocolConstants.GUEST_ID_BIT) this.#lastId = Math.max(this.#lastId, id);
      if (entry.kind === "process") this.#inherited.set(id, entry);
      // The other end of a connection ended with the host that had it.
      else this.#send(encodeFrame(toGuest.RELEASE, id));
    }
    this.#line.flush();
    this.#watch?.answered();
    this.#answers.resolve(greetingId, message);
  }

  #takeFailure({ id, errno, what }: GuestMessage & { type: "failed" }): void {
    const error = refusal(errno, what);
    this.#streams.get(id)?.refuse(error);
    this.#answers.reject(id, error);
  }

  #nextId(): number {
    this.#assertOpen();
    do {
      this.#lastId = (this.#lastId + 1) % protocolConstants.GUEST_ID_BIT;
    } while (this.#lastId === greetingId || this.#streams.has(this.#lastId) || this.#inherited.has(this.#lastId));
    return this.#lastId;
  }

  #assertOpen(): void {
    if (this.#end !== undefined) throw this.#end.reason ?? new Error("The channel is closed");
  }

  #send = (frame: Buffer, onTaken?: () => void): void => {
    if (this.#end !== undefined) return;
    this.#line.write(frame, onTaken);
  };

  #takeEnd(cause: Error | undefined): void {
    const unexplained = new SandboxError("sandbox_ended", "Cannot go on: the sandbox has ended", { cause });
    if (this.#move !== undefined) {
      this.#move.end = { cause };
      this.#line.leave();
      return this.#answers.rejectAll(unexplained);
    }
    const explained = this.#explainEnd?.() ?? Promise.resolve(unexplained);
    void explained.catch(() => unexplained).then((reason) => this.#finish(reason));
  }

  #finish(reason: SandboxError | undefined): void {
    if (this.#end !== undefined) return;
    this.#end = { reason };
    this.#watch?.close();
    this.#line.leave();
    this.#egress.abandonRequests();
    const error = reason ?? new SandboxError("sandbox_ended", "Cannot go on: the channel to the sandbox was closed");
    this.#answers.rejectAll(error);
    for (const stream of this.#streams.values()) stream.fail(error);
    this.#streams.clear();
    this.#onClosed(reason);
  }
}
