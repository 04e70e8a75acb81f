import { binaryHeader } from "@atoll/protocol";

/** A binary message of the WebSocket. */
export interface Frame {
  kind: "stdout" | "stderr" | "stdin";
  channel: number;
  /** Position in the common order of both streams. */
  at: number;
  /** Position in its own stream. */
  offset: number;
  bytes: Uint8Array;
}

const kinds = new Map<number, Frame["kind"]>(
  Object.entries(binaryHeader.kinds).map(([name, number]) => [number, name as Frame["kind"]]),
);

export function encodeFrame({ kind, channel, at, offset, bytes }: Frame): Uint8Array {
  const message = new Uint8Array(binaryHeader.bytes + bytes.length);
  const view = new DataView(message.buffer);
  view.setUint8(0, binaryHeader.kinds[kind]);
  view.setUint32(1, channel, true);
  view.setBigUint64(5, BigInt(at), true);
  view.setBigUint64(13, BigInt(offset), true);
  message.set(bytes, binaryHeader.bytes);
  return message;
}

/** Returns `undefined` for a message that is too short, or of a kind that this version does not know. */
export function decodeFrame(message: Uint8Array): Frame | undefined {
  if (message.length < binaryHeader.bytes) return undefined;
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const kind = kinds.get(view.getUint8(0));
  if (kind === undefined) return undefined;
  return {
    kind,
    channel: view.getUint32(1, true),
    at: Number(view.getBigUint64(5, true)),
    offset: Number(view.getBigUint64(13, true)),
    bytes: message.subarray(binaryHeader.bytes),
  };
}
