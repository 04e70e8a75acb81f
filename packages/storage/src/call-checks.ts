import { SandboxError } from "@atoll/protocol";
import { maxSmallObjectBytes, type ByteRange, type Checksum } from "./object-store.ts";

const isCount = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;

export function assertByteRange(key: string, range: ByteRange): void {
  if (isCount(range.offset) && isCount(range.length)) return;
  const { offset, length } = range;
  throw new SandboxError("invalid_argument", `Cannot read ${length} bytes of ${key} from byte ${offset} on`);
}

export function assertChecksum(key: string, checksum: Checksum): void {
  if (isCount(checksum.sizeBytes) && /^[0-9a-f]{64}$/.test(checksum.sha256)) return;
  throw new SandboxError("invalid_argument", `Cannot check ${key}: the checksum is malformed`, {
    suggestion: "Give sha256 as 64 lower-case hexadecimal digits, and the size in bytes.",
    details: { sha256: checksum.sha256.slice(0, 100), sizeBytes: checksum.sizeBytes },
  });
}

export function assertSmallObject(key: string, sizeBytes: number): void {
  if (sizeBytes <= maxSmallObjectBytes) return;
  throw new SandboxError("invalid_argument", `Cannot hold ${key} in memory: it has ${sizeBytes} bytes`, {
    suggestion: `Use upload, download or read for more than ${maxSmallObjectBytes} bytes.`,
    details: { key, sizeBytes, maxSmallObjectBytes },
  });
}

export function assertSameSize(key: string, expected: Checksum, sizeBytes: number): void {
  if (sizeBytes !== expected.sizeBytes) throw otherBytes(key, expected, { sizeBytes });
}

/** Compares the bytes that came with those that were expected, before they become visible. */
export function assertSameBytes(key: string, expected: Checksum, actual: Checksum): void {
  if (actual.sizeBytes === expected.sizeBytes && actual.sha256 === expected.sha256) return;
  throw otherBytes(key, expected, { sha256: actual.sha256, sizeBytes: actual.sizeBytes });
}

function otherBytes(key: string, expected: Checksum, actual: Partial<Checksum>): SandboxError {
  return new SandboxError("storage_failed", `Cannot accept the bytes of ${key}: they are not the expected ones`, {
    suggestion: "Try again. If it fails again, the file has changed or the stored object is damaged.",
    details: { key, expected: { sha256: expected.sha256, sizeBytes: expected.sizeBytes }, actual },
  });
}

export function conflict(key: string): SandboxError {
  return new SandboxError("conflict", `Cannot write ${key}: its condition does not hold`, {
    suggestion: "Read the object again and decide again.",
    details: { key },
  });
}

export function notFound(key: string, place: string): SandboxError {
  return new SandboxError("not_found", `Cannot read ${key}: ${place} has no such object`, { details: { key, place } });
}
