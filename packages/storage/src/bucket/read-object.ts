import { assertByteRange, assertChecksum, assertSameSize, notFound } from "../call-checks.ts";
import type { ByteRange, Checksum, ObjectInfo } from "../object-store.ts";
import { receiveFile, type ReceiveOptions } from "./receive-file.ts";

/** What `readObject` needs of a store: the present version of an object, and bytes of exactly that version. */
export interface ObjectSource {
  key: string;
  place: string;
  stat(): Promise<ObjectInfo | undefined>;
  bytes(info: ObjectInfo, range: ByteRange, signal: AbortSignal): AsyncIterable<Buffer>;
}

export async function downloadObject(
  source: ObjectSource,
  path: string,
  expected: Checksum,
  transfer: ReceiveOptions,
): Promise<void> {
  assertChecksum(source.key, expected);
  const info = await present(source);
  assertSameSize(source.key, expected, info.sizeBytes);
  await receiveFile(path, expected, transfer, (range, stop) => source.bytes(info, range, stop));
}

/** Reads what the object has of the range, which may be less than the range. */
export async function readObject(
  source: ObjectSource,
  range: ByteRange,
  signal: AbortSignal,
): Promise<AsyncIterable<Buffer>> {
  assertByteRange(source.key, range);
  const info = await present(source);
  const length = Math.max(0, Math.min(range.length, info.sizeBytes - range.offset));
  return source.bytes(info, { offset: range.offset, length }, signal);
}

async function present(source: ObjectSource): Promise<ObjectInfo> {
  const info = await source.stat();
  if (info === undefined) throw notFound(source.key, source.place);
  return info;
}
