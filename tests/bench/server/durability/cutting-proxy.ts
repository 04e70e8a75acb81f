import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/**
 * A proxy to the server that counts the bytes that pass, and that can be cut. While the server is down, connections
 * fail.
 */
export class CuttingProxy implements AsyncDisposable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Bytes in both directions since `arm` was called. */
  #passed = 0;
  #hits: { at: number; strike: () => void }[] = [];

  private constructor(targetPort: number) {
    this.#server = createServer((near) => this.#join(near, connect(targetPort, "127.0.0.1")));
  }

  static async open(targetPort: number): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(targetPort);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Starts to count, and calls `strike` once at each of the byte counts. */
  arm(places: readonly number[], strike: () => void): void {
    this.#passed = 0;
    this.#hits = places.map((at) => ({ at, strike }));
    this.#look();
  }

  /** Cancels the strikes that have not happened, and returns their number. */
  disarm(): number {
    return this.#hits.splice(0).length;
  }

  cut({ isReset }: { isReset: boolean }): void {
    for (const socket of this.#sockets) {
      if (isReset) socket.resetAndDestroy();
      else socket.destroy();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disarm();
    this.#server.close();
    this.cut({ isReset: false });
    await once(this.#server, "close");
  }

  #join(near: Socket, far: Socket): void {
    const pairs = [
      [near, far],
      [far, near],
    ] as const;
    for (const [from, to] of pairs) {
      this.#sockets.add(from);
      from.setNoDelay(true);
      from.on("data", (data: Buffer) => {
        this.#passed += data.byteLength;
        if (to.writable && !to.write(data)) {
          from.pause();
          to.once("drain", () => from.resume());
        }
        this.#look();
      });
      from.on("end", () => to.end());
      // This proxy cuts connections on purpose.
      from.on("error", () => undefined);
      from.on("close", () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }

  #look(): void {
    while ((this.#hits[0]?.at ?? Number.POSITIVE_INFINITY) <= this.#passed) this.#hits.shift()?.strike();
  }
}
