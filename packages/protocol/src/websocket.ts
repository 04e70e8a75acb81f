import { z } from "zod";
import { CommandId, CommandInfo, InputWriter } from "./command.ts";
import { WatchMessage } from "./file.ts";
import { WireError } from "./http.ts";
import { SandboxId } from "./ids.ts";
import { signalNumbers } from "./process.ts";

/**
 * One WebSocket carries any number of channels, numbered by the client. Control messages are JSON text, bytes are
 * binary messages (`binaryHeader`). The server sends at most `windowBytes` of a channel that the client has not
 * acknowledged; a client sends at most as much input that is not accepted, and `connectionBytes` of it over all
 * channels.
 */
export const websocketProtocol = {
  version: 1,
  path: "/ws",
  windowBytes: 1024 * 1024,
  connectionBytes: 32 * 1024 * 1024,
  helloTimeoutMs: 10_000,
  heartbeatMs: 15_000,
} as const;

/**
 * The header of a binary message: `u8` kind, `u32` channel, `u64` at, `u64` offset, all little-endian; the bytes
 * follow.
 */
export const binaryHeader = { bytes: 21, kinds: { stdout: 1, stderr: 2, stdin: 3 } } as const;

const channel = z.int().min(1).max(0xffff_ffff);

export const ClientMessage = z.discriminatedUnion("type", [
  /** The first message, within `helloTimeoutMs`. A browser cannot send headers with a WebSocket. */
  z.strictObject({
    type: z.literal("hello"),
    version: z.literal(1),
    key: z.string().max(200).optional(),
    sandboxToken: z.string().max(200).optional(),
    /** The same as the header of this name. */
    holder: z.string().min(1).max(63).optional(),
  }),
  z.strictObject({
    type: z.literal("follow"),
    channel,
    sandboxId: SandboxId,
    commandId: CommandId,
    from: z.int().min(0).default(0),
    /** The command's `rollbacks` when the bytes before `from` were read; see `CommandInfo`. */
    rollbacks: z.int().min(0).optional(),
    /**
     * The writer of the input on this channel. Offsets then count this writer's bytes only, so that several writers can
     * write at once.
     */
    writer: InputWriter.optional(),
  }),
  z.strictObject({ type: z.literal("ack"), channel, at: z.int().min(0) }),
  z.strictObject({ type: z.literal("stdin_end"), channel, offset: z.int().min(0) }),
  z.strictObject({
    type: z.literal("signal"),
    channel,
    signal: z.enum(Object.keys(signalNumbers) as [keyof typeof signalNumbers, ...(keyof typeof signalNumbers)[]]),
  }),
  z.strictObject({
    type: z.literal("resize"),
    channel,
    rows: z.int().min(1).max(65_535),
    cols: z.int().min(1).max(65_535),
  }),
  z.strictObject({
    type: z.literal("watch"),
    channel,
    sandboxId: SandboxId,
    path: z.string().min(1).max(4096),
    user: z.string().default("user"),
    recursive: z.boolean().default(false),
    watch: z.string().optional(),
    cursor: z.int().min(0).optional(),
  }),
  z.strictObject({
    type: z.literal("events"),
    channel,
    cursor: z.int().min(0).optional(),
    sandboxId: SandboxId.optional(),
  }),
  z.strictObject({ type: z.literal("close"), channel }),
  z.strictObject({ type: z.literal("ping"), id: z.int() }),
]);
export type ClientMessage = z.output<typeof ClientMessage>;
export type ClientMessageInput = z.input<typeof ClientMessage>;

export const ServerMessage = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("welcome"), version: z.literal(1), serverId: z.string() }),
  /**
   * `writerBytes` is the offset of this writer's next input. It is absent while it is not known, as for a paused
   * sandbox: the writer then goes on from the last byte that was accepted.
   */
  z.strictObject({
    type: z.literal("following"),
    channel,
    command: CommandInfo,
    writerBytes: z.int().min(0).optional(),
  }),
  /** The log no longer has these bytes; output goes on behind them. */
  z.strictObject({ type: z.literal("dropped"), channel, at: z.int(), bytes: z.int() }),
  /**
   * Input below this offset will reach the process: the client may forget it. Without a writer, the offset counts the
   * input of other clients too, and the next input goes behind it. `isEnd` answers `stdin_end`.
   */
  z.strictObject({
    type: z.literal("stdin_accepted"),
    channel,
    offset: z.int(),
    isEnd: z.literal(true).optional(),
  }),
  z.strictObject({ type: z.literal("ended"), channel, command: CommandInfo }),
  z.strictObject({ type: z.literal("watching"), channel, watch: z.string() }),
  z.strictObject({ type: z.literal("changed"), channel, event: WatchMessage }),
  z.strictObject({ type: z.literal("event"), channel, event: z.looseObject({ cursor: z.int(), type: z.string() }) }),
  /**
   * On a channel of `events`: everything up to this cursor was sent, or is not for this follower; the follower
   * reconnects with this cursor. It is the first message on the channel, unless `events.lost` is, so that a follower
   * without a cursor knows where it began; later ones come from time to time among events that are not for it.
   */
  z.strictObject({ type: z.literal("passed"), channel, cursor: z.int().min(0) }),
  z.strictObject({ type: z.literal("error"), channel: channel.optional(), error: WireError }),
  z.strictObject({ type: z.literal("pong"), id: z.int() }),
  /** The server is shutting down: connect again and go on. */
  z.strictObject({ type: z.literal("shutdown") }),
]);
export type ServerMessage = z.infer<typeof ServerMessage>;
