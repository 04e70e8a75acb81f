import { ClientMessage, SandboxError, ServerMessage, isSandboxError, websocketProtocol } from "@atoll/protocol";
import type { WebSocketLike } from "../environment/environment.ts";
import { decodeFrame, encodeFrame } from "../socket/frame.ts";
import { Bell } from "./bell.ts";
import type { MockCommand } from "./mock-command.ts";
import { isKnownKey } from "./mock-fetch.ts";
import { wholePath } from "./mock-files.ts";
import type { MockWorld } from "./mock-world.ts";

/** Like on the server, a follower gets its cursor after this many events that are not for it. */
const passedStep = 100;

interface OpenChannel {
  stop: AbortController;
  command?: MockCommand;
  writer?: string | undefined;
  ackedAt: number;
}

/** A WebSocket whose other end is the mock. */
export class MockSocket implements WebSocketLike {
  binaryType = "arraybuffer";
  readonly #world: MockWorld;
  readonly #listeners: Record<string, ((event: never) => void)[]> = {};
  readonly #channels = new Map<number, OpenChannel>();
  readonly #acked = new Bell();
  #isOpen = false;
  #isClosed = false;
  #isGreeted = false;

  constructor(world: MockWorld) {
    this.#world = world;
    // Like a real socket, it opens after its creator has had time to add listeners.
    setTimeout(() => {
      if (this.#isClosed) return;
      this.#isOpen = true;
      this.#emit("open", {});
    }, 0);
  }

  addEventListener(type: string, listener: (event: never) => void): void {
    (this.#listeners[type] ??= []).push(listener);
  }

  send(data: string | Uint8Array): void {
    if (!this.#isOpen) return;
    const received = typeof data === "string" ? data : data.slice();
    queueMicrotask(() => {
      if (this.#isOpen) this.#receive(received);
    });
  }

  close(code = 1000, reason = ""): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#isOpen = false;
    for (const { stop, command } of this.#channels.values()) {
      stop.abort();
      command?.bell.ring();
    }
    this.#acked.ring();
    this.#world.bell.ring();
    queueMicrotask(() => this.#emit("close", { code, reason }));
  }

  #receive(data: string | Uint8Array): void {
    try {
      if (typeof data === "string") this.#onMessage(ClientMessage.parse(JSON.parse(data)));
      else this.#onBytes(data);
    } catch (thrown) {
      this.#fail(undefined, thrown);
      this.close(1008, "the error says why");
    }
  }

  #onBytes(data: Uint8Array): void {
    const frame = decodeFrame(data);
    if (frame?.kind !== "stdin")
      throw new SandboxError("invalid_argument", "Cannot accept this message: it is not input");
    this.#input(frame.channel, (command, writer) => command.writeStdin(frame.bytes, frame.offset, writer));
  }

  #input(
    channel: number,
    act: (command: MockCommand, writer: string | undefined) => number,
    what: { isEnd?: true } = {},
  ): void {
    const { command, writer } = this.#channels.get(channel) ?? {};
    if (command === undefined) return;
    try {
      this.#say({ type: "stdin_accepted", channel, offset: act(command, writer), ...what });
    } catch (error) {
      this.#fail(channel, error);
    }
  }

  #onMessage(message: ClientMessage): void {
    if (message.type === "hello") return this.#hello(message);
    if (!this.#isGreeted)
      throw new SandboxError("invalid_argument", "Cannot accept this message: hello must be the first");
    switch (message.type) {
      case "ping":
        return this.#say({ type: "pong", id: message.id });
      case "follow":
        return this.#open(message.channel, () => {
          const command = this.#world.sandbox(message.sandboxId).command(message.commandId, message.rollbacks);
          const { writer, from } = message;
          command.assertSince(message.rollbacks);
          return { command, writer, work: (channel) => this.#follow(message.channel, channel, command, from) };
        });
      case "watch":
        return this.#open(message.channel, () => {
          this.#world.sandbox(message.sandboxId).files.stat(message.path);
          return { work: (channel) => this.#watch(channel, message) };
        });
      case "events":
        return this.#open(message.channel, () => ({ work: (channel) => this.#events(channel, message) }));
      case "close":
        this.#channels.get(message.channel)?.stop.abort();
        this.#channels.delete(message.channel);
        return undefined;
      case "ack": {
        const channel = this.#channels.get(message.channel);
        if (channel !== undefined) channel.ackedAt = message.at;
        return this.#acked.ring();
      }
      case "stdin_end":
        return this.#input(message.channel, (command, writer) => command.closeStdin(writer), { isEnd: true });
      case "signal":
        return this.#channels.get(message.channel)?.command?.kill(message.signal);
      case "resize":
        return undefined;
    }
  }

  #hello({ key, sandboxToken }: Extract<ClientMessage, { type: "hello" }>): void {
    const isToken = [...this.#world.sandboxes.values()].some(({ token }) => token === sandboxToken);
    if (!isToken && (key === undefined || !isKnownKey(this.#world, key))) {
      throw new SandboxError("permission_denied", "Cannot connect: this API key is not valid");
    }
    this.#isGreeted = true;
    this.#say({ type: "welcome", version: 1, serverId: "mock" });
  }

  #open(
    number: number,
    prepare: () => Pick<OpenChannel, "command" | "writer"> & { work: (channel: OpenChannel) => Promise<void> },
  ): void {
    try {
      const { command, writer, work } = prepare();
      const channel: OpenChannel = {
        stop: new AbortController(),
        ackedAt: 0,
        writer,
        ...(command === undefined ? {} : { command }),
      };
      this.#channels.set(number, channel);
      work(channel).catch((error: unknown) => this.#fail(number, error));
    } catch (error) {
      this.#fail(number, error);
    }
  }

  async #follow(number: number, channel: OpenChannel, command: MockCommand, from: number): Promise<void> {
    const { signal } = channel.stop;
    channel.ackedAt = from;
    const { writer } = channel;
    const writerBytes = writer === undefined ? {} : { writerBytes: command.nextOffset(writer) };
    this.#say({ type: "following", channel: number, command: { ...command.info }, ...writerBytes });
    void this.#reportInput(number, channel, command);
    const { rollbacks = 0 } = command.info;
    for (let at = from; ;) {
      command.assertSince(rollbacks);
      for (let piece = command.log.next(at); piece !== undefined; piece = command.log.next(at)) {
        if ("droppedBytes" in piece) {
          this.#say({ type: "dropped", channel: number, at, bytes: piece.droppedBytes });
          at += piece.droppedBytes;
          continue;
        }
        if (at - channel.ackedAt > websocketProtocol.windowBytes) {
          await this.#acked.next();
          if (signal.aborted) return;
          continue;
        }
        const { stream: kind, offset, bytes } = piece;
        this.#deliver(encodeFrame({ kind, channel: number, at, offset, bytes }).buffer);
        at += bytes.length;
      }
      if (command.info.state !== "running") break;
      await command.bell.next();
      if (signal.aborted) return;
    }
    this.#channels.delete(number);
    this.#say({ type: "ended", channel: number, command: { ...command.info } });
  }

  async #reportInput(number: number, channel: OpenChannel, command: MockCommand): Promise<void> {
    for (;;) {
      await command.inputBell.next();
      if (this.#channels.get(number) !== channel) return;
      this.#say({ type: "stdin_accepted", channel: number, offset: command.nextOffset(channel.writer) });
    }
  }

  async #watch(channel: OpenChannel, message: Extract<ClientMessage, { type: "watch" }>): Promise<void> {
    const { files } = this.#world.sandbox(message.sandboxId);
    const root = `${wholePath(message.path)}/`;
    // The cursor of the first message is that of the last change before it.
    const watch = message.watch ?? `w${files.changes.length}`;
    const first = Number(watch.slice(1));
    this.#say({ type: "watching", channel: message.channel, watch });
    const say = (
      cursor: number,
      kind: "watching" | (typeof files.changes)[number]["kind"],
      isDirectory: boolean,
      path: string,
    ) =>
      this.#say({ type: "changed", channel: message.channel, event: { cursor, kind, isDirectory, cookie: 0, path } });
    if (message.cursor === undefined) say(first, "watching", true, "");
    for (let next = message.cursor ?? first; ;) {
      for (; next < files.changes.length; next += 1) {
        const change = files.changes[next];
        if (change === undefined || !change.path.startsWith(root)) continue;
        const path = change.path.slice(root.length);
        if (message.recursive || !path.includes("/")) say(change.cursor, change.kind, change.isDirectory, path);
      }
      await files.bell.next();
      if (channel.stop.signal.aborted) return;
    }
  }

  async #events(channel: OpenChannel, message: Extract<ClientMessage, { type: "events" }>): Promise<void> {
    const { events, bell } = this.#world;
    const { channel: number, sandboxId, cursor = events.length } = message;
    const first = Math.min(cursor, events.length);
    if (first === cursor) {
      this.#say({ type: "passed", channel: number, cursor });
    } else {
      const lost = { type: "events.lost", cursor: first, atMs: Date.now(), before: first + 1 };
      this.#say({ type: "event", channel: number, event: lost });
    }
    let lastSent = first;
    for (let next = first; ;) {
      for (; next < events.length; next += 1) {
        const event = events[next];
        if (event === undefined) continue;
        const isWanted = sandboxId === undefined || ("sandboxId" in event && event.sandboxId === sandboxId);
        if (!isWanted && event.cursor - lastSent < passedStep) continue;
        lastSent = event.cursor;
        if (isWanted) this.#say({ type: "event", channel: number, event });
        else this.#say({ type: "passed", channel: number, cursor: lastSent });
      }
      await bell.next();
      if (channel.stop.signal.aborted) return;
    }
  }

  #fail(channel: number | undefined, thrown: unknown): void {
    const error = isSandboxError(thrown) ? thrown : new SandboxError("invalid_argument", String(thrown));
    const { code, message, suggestion, details } = error;
    const wire = { code, message, details, ...(suggestion === undefined ? {} : { suggestion }) };
    if (channel !== undefined) this.#channels.delete(channel);
    this.#say({ type: "error", ...(channel === undefined ? {} : { channel }), error: wire });
  }

  #say(message: ServerMessage): void {
    this.#deliver(JSON.stringify(ServerMessage.parse(message)));
  }

  #deliver(data: unknown): void {
    if (this.#isOpen) queueMicrotask(() => this.#emit("message", { data }));
  }

  #emit(type: string, event: object): void {
    for (const listener of this.#listeners[type] ?? []) listener(event as never);
  }
}
