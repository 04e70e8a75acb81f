/** The numbers of `docs/guest-protocol.md`; a test compares the two, and both with the guest's header. */

export const protocolConstants = {
  VERSION: 1,
  MAX_TO_GUEST: 262_144,
  MAX_TO_HOST: 65_600,
  MAX_DATA: 65_536,
  MAX_STREAMS: 768,
  WINDOW_DEFAULT: 262_144,
  WINDOW_MAX: 1_048_576,
  STDIN_WINDOW: 262_144,
  GUEST_ID_BIT: 0x8000_0000,
} as const;

export const toGuest = {
  HELLO: 0x01,
  SPAWN: 0x10,
  STDIN: 0x11,
  STDIN_EOF: 0x12,
  ACK: 0x13,
  SIGNAL: 0x14,
  RESIZE: 0x15,
  RELEASE: 0x16,
  ATTACH: 0x17,
  DIAL: 0x18,
  VERDICT: 0x19,
  PROXY: 0x20,
  CAP: 0x21,
  COUNT: 0x22,
  HOLDERS: 0x23,
  PREPARE: 0x24,
  RESTORED: 0x25,
  PING: 0x26,
  NODES: 0x27,
  END_HOLDERS: 0x28,
} as const;
export type ToGuestType = (typeof toGuest)[keyof typeof toGuest];

export const toHost = {
  WELCOME: 0x81,
  STARTED: 0x90,
  FAILED: 0x91,
  OUTPUT: 0x92,
  STDIN_ACK: 0x93,
  STDIN_CLOSED: 0x94,
  EXIT: 0x95,
  END: 0x96,
  CONNECT: 0x98,
  DONE: 0x99,
  COUNTED: 0x9a,
  HELD_BY: 0x9b,
  READY: 0x9c,
  PONG: 0x9d,
  NODES_ARE: 0x9e,
} as const;

export const spawnFlags = { SPAWN_PTY: 1, SPAWN_STDIN: 2, SPAWN_TOOL: 4 } as const;

export const frameMagic = 0x4c4f_5441;
export const typeOffset = 8;
export const headerBytes = 16;
export const trailerBytes = 4;

export interface Frame {
  type: number;
  id: number;
  payload: Buffer;
}

export function frameTrailer(type: number, id: number, length: number): number {
  return ~(length ^ id ^ type) >>> 0;
}

/** Encodes a frame as one buffer, so that one system call writes it to the FIFO. */
export function encodeFrame(type: ToGuestType, id: number, ...parts: Uint8Array[]): Buffer {
  const length = parts.reduce((sum, part) => sum + part.byteLength, 0);
  if (length > protocolConstants.MAX_TO_GUEST) throw new RangeError(`Frame payload of ${length} bytes`);
  const frame = Buffer.allocUnsafe(headerBytes + length + trailerBytes);
  frame.writeUInt32LE(frameMagic, 0);
  frame.writeUInt32LE(length, 4);
  frame.writeUInt32LE(type, 8);
  frame.writeUInt32LE(id, 12);
  let position = headerBytes;
  for (const part of parts) {
    frame.set(part, position);
    position += part.byteLength;
  }
  frame.writeUInt32LE(frameTrailer(type, id, length), position);
  return frame;
}

/** Zero bytes that complete a frame which a dead host left half written. */
export const tornFramePadding = Buffer.alloc(protocolConstants.MAX_TO_GUEST + headerBytes + trailerBytes);
