import { crc32 } from "node:zlib";

/** A piece of output as it arrived: `at` counts both streams in their common order, `offset` its own stream. */
export interface OutputPiece {
  stream: "stdout" | "stderr";
  at: number;
  offset: number;
  data: Buffer;
}

/**
 * The header of a record: `u32` checksum of all that follows, `u32` length with the top bit set for stderr, `u64` at,
 * `u64` offset; then the bytes. Numbers are little-endian.
 */
export const recordHeaderBytes = 24;

/** More bytes than any record has. Bytes that claim a greater length are not a record. */
export const maxRecordBytes = 128 * 1024;

const stderrBit = 0x8000_0000;

export function encodeRecordHeader({ stream, at, offset, data }: OutputPiece): Buffer {
  const header = Buffer.alloc(recordHeaderBytes);
  header.writeUInt32LE((data.byteLength | (stream === "stderr" ? stderrBit : 0)) >>> 0, 4);
  header.writeBigUInt64LE(BigInt(at), 8);
  header.writeBigUInt64LE(BigInt(offset), 16);
  header.writeUInt32LE(crc32(data, crc32(header.subarray(4))), 0);
  return header;
}

/** Returns the record at `position`, or `undefined` if it is incomplete or damaged. `data` is a view. */
export function parseRecord(bytes: Buffer, position: number): OutputPiece | undefined {
  if (position + recordHeaderBytes > bytes.byteLength) return undefined;
  const lengthAndStream = bytes.readUInt32LE(position + 4);
  const length = (lengthAndStream & ~stderrBit) >>> 0;
  const start = position + recordHeaderBytes;
  if (length === 0 || length > maxRecordBytes || start + length > bytes.byteLength) return undefined;
  const data = bytes.subarray(start, start + length);
  if (crc32(data, crc32(bytes.subarray(position + 4, start))) !== bytes.readUInt32LE(position)) return undefined;
  return {
    stream: (lengthAndStream & stderrBit) === 0 ? "stdout" : "stderr",
    at: Number(bytes.readBigUInt64LE(position + 8)),
    offset: Number(bytes.readBigUInt64LE(position + 16)),
    data,
  };
}
