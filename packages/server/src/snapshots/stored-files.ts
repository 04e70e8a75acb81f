import { SandboxError } from "@atoll/protocol";
import type { Checksum } from "@atoll/storage";
import {
  decodeFile,
  doesCompressionPay,
  encodeFile,
  isBadEncoding,
  TooManyBytes,
} from "../persistence/checkpoint-encoding.ts";
import type { PartEncoding } from "../persistence/checkpoint-keys.ts";

/** The archive of a snapshot in the form that is stored. */
export interface StoredFiles extends Checksum {
  path: string;
  encoding: PartEncoding;
}

/** Compresses an archive into `target` if samples of it show that this pays; otherwise it is stored as it is. */
export async function shrinkFiles(
  plain: Checksum & { path: string },
  target: string,
  signal: AbortSignal,
): Promise<StoredFiles> {
  const { path, sizeBytes, sha256 } = plain;
  if (!(await doesCompressionPay(path, sizeBytes))) return { path, encoding: "plain", sizeBytes, sha256 };
  const { original, encoded } = await encodeFile(path, target, signal);
  assertSame(plain, original);
  return { path: target, encoding: "br", ...encoded };
}

/**
 * Reverses `shrinkFiles` and returns the path of the archive: `target` if it was compressed. Rejects with
 * `unrestorable` if its bytes are wrong, and never writes more than expected.
 */
export async function restoreFiles(
  stored: StoredFiles,
  target: string,
  { expected, signal }: { expected: Checksum; signal: AbortSignal },
): Promise<string> {
  if (stored.encoding === "plain") {
    assertSame(expected, stored);
    return stored.path;
  }
  try {
    assertSame(expected, await decodeFile(stored.path, target, { mostBytes: expected.sizeBytes, signal }));
    return target;
  } catch (error) {
    throw error instanceof TooManyBytes || isBadEncoding(error) ? differs(expected, error) : error;
  }
}

function assertSame(expected: Checksum, actual: Checksum): void {
  if (actual.sizeBytes !== expected.sizeBytes || actual.sha256 !== expected.sha256) throw differs(expected);
}

function differs({ sizeBytes, sha256 }: Checksum, cause?: unknown): SandboxError {
  return new SandboxError("unrestorable", "Cannot use the files: their bytes were changed", {
    details: { expected: { sizeBytes, sha256 } },
    ...(cause === undefined ? {} : { cause }),
  });
}
