export interface LogPiece {
  stream: "stdout" | "stderr";
  at: number;
  offset: number;
  bytes: Uint8Array;
}

/** The gap between the beginning and the end that were kept. */
interface LogGap {
  at: number;
  droppedBytes: number;
}

/**
 * The output of a command. Like the server's log, it keeps a quarter of its size from the beginning and the rest from
 * the end.
 */
export class MockLog {
  readonly #headBytes: number;
  readonly #tailBytes: number;
  readonly #head: LogPiece[] = [];
  readonly #tail: LogPiece[] = [];
  #tailLength = 0;
  #endAt = 0;

  constructor(logBytes: number) {
    this.#headBytes = Math.floor(logBytes / 4);
    this.#tailBytes = logBytes - this.#headBytes;
  }

  get droppedBytes(): number {
    return (this.#tail[0]?.at ?? this.#endAt) - this.#headEnd;
  }

  append(stream: "stdout" | "stderr", offset: number, bytes: Uint8Array): void {
    const room = Math.max(0, this.#headBytes - this.#endAt);
    this.#keep(this.#head, { stream, at: this.#endAt, offset, bytes: bytes.subarray(0, room) });
    const rest = bytes.subarray(room);
    this.#keep(this.#tail, { stream, at: this.#endAt, offset: offset + bytes.length - rest.length, bytes: rest });
    this.#tailLength += rest.length;
    for (let first = this.#tail[0]; first !== undefined && this.#tailLength > this.#tailBytes; first = this.#tail[0]) {
      const excess = Math.min(this.#tailLength - this.#tailBytes, first.bytes.length);
      this.#tailLength -= excess;
      if (excess === first.bytes.length) this.#tail.shift();
      else this.#tail[0] = cutOff(first, excess);
    }
  }

  /** Returns what comes at this byte of both streams together: the rest of a piece, a gap, or nothing yet. */
  next(at: number): LogPiece | LogGap | undefined {
    const piece = [...this.#head, ...this.#tail].find((candidate) => candidate.at + candidate.bytes.length > at);
    if (piece === undefined || piece.at <= at) return piece === undefined ? undefined : cutOff(piece, at - piece.at);
    return { at, droppedBytes: piece.at - at };
  }

  /** Returns all output that is kept. */
  pieces(): LogPiece[] {
    return [...this.#head, ...this.#tail];
  }

  get #headEnd(): number {
    return Math.min(this.#endAt, this.#headBytes);
  }

  #keep(pieces: LogPiece[], piece: LogPiece): void {
    if (piece.bytes.length === 0) return;
    pieces.push(piece);
    this.#endAt += piece.bytes.length;
  }
}

function cutOff(piece: LogPiece, count: number): LogPiece {
  const { stream, at, offset, bytes } = piece;
  return { stream, at: at + count, offset: offset + count, bytes: bytes.subarray(count) };
}
