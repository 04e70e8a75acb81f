import { closeSync, constants, openSync } from "node:fs";
import { Socket, type ConnectOpts, type SocketConstructorOpts } from "node:net";

/** All reads use one piece of memory: a flood of output would otherwise leave many buffers to the garbage collector. */
const readBytes = 64 * 1024;

export interface FifoPaths {
  /** Host → guest. */
  in: string;
  /** Guest → host. */
  out: string;
}

/**
 * The host's end of a pair of FIFOs. The sandbox's side has both open for reading and writing, so this end may be
 * closed and opened again. It opens each FIFO in one direction, so it gets an end of file, or a broken pipe, exactly
 * when the sandbox's last process is gone.
 */
export class FifoTransport {
  #reader: Socket;
  #writer: Socket;
  #onData: (chunk: Buffer) => void = () => undefined;

  /** Throws `ENXIO` when no process has the other side open: the sandbox is gone. */
  constructor(paths: FifoPaths) {
    const writeFd = openSync(paths.in, constants.O_WRONLY | constants.O_NONBLOCK);
    let readFd: number;
    try {
      readFd = openSync(paths.out, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (error) {
      closeSync(writeFd);
      throw error;
    }
    this.#writer = new Socket({ fd: writeFd, readable: false, writable: true });
    const buffer = Buffer.allocUnsafeSlow(readBytes);
    const options: SocketConstructorOpts & ConnectOpts = {
      fd: readFd,
      readable: true,
      writable: false,
      onread: {
        buffer,
        callback: (bytes) => {
          this.#onData(buffer.subarray(0, bytes));
          return true;
        },
      },
    };
    this.#reader = new Socket(options);
  }

  /** A chunk is valid until `onData` returns. `onEnd` is called once, with the error if there was one. */
  listen(onData: (chunk: Buffer) => void, onEnd: (error: Error | undefined) => void): void {
    let ended = false;
    const end = (error?: Error): void => {
      if (ended) return;
      ended = true;
      this.close();
      onEnd(error);
    };
    this.#onData = onData;
    this.#reader.on("end", () => {
      end();
    });
    this.#reader.on("error", end);
    this.#reader.on("close", () => {
      end();
    });
    // The reading side reports the sandbox's death, after the last byte that it wrote.
    this.#writer.on("error", () => undefined);
  }

  /**
   * Never blocks. Bytes that do not fit into the FIFO wait in memory; `onTaken` is called when they are in the FIFO.
   */
  write(bytes: Uint8Array, onTaken?: () => void): void {
    if (this.#writer.destroyed) return;
    this.#writer.write(bytes, (error) => {
      if (!error) onTaken?.();
    });
  }

  close(): void {
    this.#reader.destroy();
    this.#writer.destroy();
  }
}
