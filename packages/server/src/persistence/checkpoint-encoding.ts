import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import { brotliCompress, constants, createBrotliCompress, createBrotliDecompress } from "node:zlib";
import type { Checksum } from "@atoll/storage";

const sampleBytes = 64 * 1024;
const mostSamples = 16;
/** The smallest size for which compression is tried. */
const minBytes = 4 * 1024;
/** The compressed share of the sample up to which compression pays; otherwise the time is better spent on sending. */
const payingRatio = 0.8;

const chunkSize = 256 * 1024;
const params = { [constants.BROTLI_PARAM_QUALITY]: 1 };
const compress = promisify(brotliCompress);

/** Reports whether samples from all over a file get so much smaller that compressing it pays. */
export async function doesCompressionPay(path: string, sizeBytes: number): Promise<boolean> {
  if (sizeBytes < minBytes) return false;
  const file = await open(path, "r");
  try {
    const count = Math.min(mostSamples, Math.ceil(sizeBytes / sampleBytes));
    const step = count === 1 ? 0 : Math.max(0, sizeBytes - sampleBytes) / (count - 1);
    let before = 0;
    let after = 0;
    for (let index = 0; index < count; index++) {
      const sample = await readSample(file, Math.floor(index * step));
      before += sample.length;
      after += (await compress(sample, { params })).length;
    }
    return after <= before * payingRatio;
  } finally {
    await file.close();
  }
}

async function readSample(file: FileHandle, position: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(sampleBytes);
  const { bytesRead } = await file.read(buffer, 0, sampleBytes, position);
  return buffer.subarray(0, bytesRead);
}

/** Compresses a file into a new one. Returns the checksums of what was read and of what was written. */
export async function encodeFile(
  path: string,
  toPath: string,
  signal: AbortSignal,
): Promise<{ original: Checksum; encoded: Checksum }> {
  const original = new Meter();
  const encoded = new Meter();
  await pipeline(
    createReadStream(path, { highWaterMark: chunkSize }),
    original,
    createBrotliCompress({ chunkSize, params }),
    encoded,
    createWriteStream(toPath, { flags: "wx", mode: 0o600, highWaterMark: chunkSize }),
    { signal },
  );
  return { original: original.checksum, encoded: encoded.checksum };
}

/**
 * Decompresses a file. It never writes more than `mostBytes`: it rejects with `TooManyBytes` as soon as there are more.
 */
export async function decodeFile(
  path: string,
  toPath: string,
  { mostBytes, signal }: { mostBytes: number; signal: AbortSignal },
): Promise<Checksum> {
  const original = new Meter(mostBytes);
  await pipeline(
    createReadStream(path, { highWaterMark: chunkSize }),
    createBrotliDecompress({ chunkSize }),
    original,
    createWriteStream(toPath, { flags: "wx", mode: 0o600, highWaterMark: chunkSize }),
    { signal },
  );
  return original.checksum;
}

export class TooManyBytes extends Error {}

/** Reports whether an error of `decodeFile` is about damaged input. */
export function isBadEncoding(error: unknown): boolean {
  if (!(error instanceof Error && "code" in error)) return false;
  return /^(ERR__ERROR|Z_)/.test(String(error.code));
}

/** Counts and hashes the bytes that pass. */
export class Meter extends Transform {
  readonly #hash = createHash("sha256");
  readonly #mostBytes: number;
  #sizeBytes = 0;

  constructor(mostBytes = Number.POSITIVE_INFINITY) {
    super({ highWaterMark: chunkSize });
    this.#mostBytes = mostBytes;
  }

  /** Returns the result. It is read once, at the end. */
  get checksum(): Checksum {
    return { sizeBytes: this.#sizeBytes, sha256: this.#hash.digest("hex") };
  }

  override _transform(chunk: Buffer, _encoding: string, done: (error: Error | null, chunk?: Buffer) => void): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > this.#mostBytes) return done(new TooManyBytes(`More than ${this.#mostBytes} bytes`));
    this.#hash.update(chunk);
    done(null, chunk);
  }
}
