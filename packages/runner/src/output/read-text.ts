import { open, type FileHandle } from "node:fs/promises";

/** The first and the last bytes of a file as text. `tail` is empty when `head` has everything. */
export interface TextEnds {
  head: string;
  tail: string;
}

/** Reads at most `headBytes` and `tailBytes` of a file. No character is cut: invalid UTF-8 is replaced. */
export async function readEnds(path: string, headBytes: number, tailBytes: number): Promise<TextEnds> {
  const file = await open(path, "r");
  try {
    const { size } = await file.stat();
    if (size <= headBytes + tailBytes) return { head: decode(await readAt(file, 0, size)), tail: "" };
    return {
      head: decode(withoutCutEnd(await readAt(file, 0, headBytes))),
      tail: decode(withoutCutStart(await readAt(file, size - tailBytes, tailBytes))),
    };
  } finally {
    await file.close();
  }
}

/** The last bytes of a file as text, as a parser wants it. */
export async function readTail(path: string, maxBytes: number): Promise<string> {
  const { head, tail } = await readEnds(path, 0, maxBytes);
  return head === "" ? tail : head;
}

async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let got = 0;
  while (got < length) {
    const { bytesRead } = await file.read(buffer, got, length - got, position + got);
    if (bytesRead === 0) break;
    got += bytesRead;
  }
  return buffer.subarray(0, got);
}

function decode(bytes: Buffer): string {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

const isContinuation = (byte: number | undefined): boolean => byte !== undefined && (byte & 0xc0) === 0x80;

/** Leaves out the bytes of a character whose first byte lies before. */
function withoutCutStart(bytes: Buffer): Buffer {
  let from = 0;
  while (from < 3 && isContinuation(bytes[from])) from += 1;
  return bytes.subarray(from);
}

/** Leaves out the beginning of a character whose last byte lies behind. */
function withoutCutEnd(bytes: Buffer): Buffer {
  for (let back = 1; back <= Math.min(4, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (isContinuation(byte)) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}
