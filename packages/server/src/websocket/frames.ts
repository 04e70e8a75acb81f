import { binaryHeader } from "@atoll/protocol";

type BinaryKind = keyof typeof binaryHeader.kinds;

export interface BinaryFrame {
  kind: BinaryKind;
  channel: number;
  at: number;
  offset: number;
  bytes: Buffer;
}

const kinds = new Map<number, BinaryKind>(
  Object.entries(binaryHeader.kinds).map(([name, number]) => [number, name as BinaryKind]),
);

export function encodeBinary({ kind, channel, at, offset, bytes }: BinaryFrame): Buffer {
  const frame = Buffer.allocUnsafe(binaryHeader.bytes + bytes.byteLength);
  frame.writeUInt8(binaryHeader.kinds[kind], 0);
  frame.writeUInt32LE(channel, 1);
  frame.writeBigUInt64LE(BigInt(at), 5);
  frame.writeBigUInt64LE(BigInt(offset), 13);
  bytes.copy(frame, binaryHeader.bytes);
  return frame;
}

/** Decodes a frame. Returns undefined if it is too short, of an unknown kind, or has numbers that no stream reaches. */
export function decodeBinary(frame: Buffer): BinaryFrame | undefined {
  if (frame.byteLength < binaryHeader.bytes) return undefined;
  const kind = kinds.get(frame.readUInt8(0));
  const at = Number(frame.readBigUInt64LE(5));
  const offset = Number(frame.readBigUInt64LE(13));
  if (kind === undefined || !Number.isSafeInteger(at) || !Number.isSafeInteger(offset)) return undefined;
  return { kind, channel: frame.readUInt32LE(1), at, offset, bytes: frame.subarray(binaryHeader.bytes) };
}
