import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

/** Size and digest, which identify a sequence of bytes. */
export interface FileDigest {
  sizeBytes: number;
  sha256: string;
}

export async function digestFile(path: string): Promise<FileDigest> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) {
    const bytes = chunk as Buffer;
    hash.update(bytes);
    sizeBytes += bytes.byteLength;
  }
  return { sizeBytes, sha256: hash.digest("hex") };
}
