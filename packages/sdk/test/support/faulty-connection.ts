import { binaryHeader } from "@atoll/protocol";
import type { WebSocketLike } from "@atoll/sdk";

type Listener = (event: never) => void;
type Open = (url: string) => WebSocketLike | Promise<WebSocketLike>;

/** Decides over one connection at a time. `cut` breaks the connection there, `swallow` loses the message. */
export interface Faults {
  /**
   * Decides over a message to the client. `cutAfterBytes` is how many of its output bytes arrive before the connection
   * breaks.
   */
  onReceive?(
    message: string | Uint8Array,
  ): "pass" | "cut" | "swallow" | { cutAfterBytes: number } | { instead: string[] };
  /**
   * Decides over a message to the server. With `answer` it does not arrive, and the client gets these messages instead
   * of the server's.
   */
  onSend?(message: string | Uint8Array): "pass" | "cut" | { answer: string[] };
}

/** A WebSocket between client and server that breaks where `faultsOf` says, also in the middle of output. */
export function faulty(open: Open, faultsOf: () => Faults): Open {
  return async (url) => new FaultySocket(await open(url), faultsOf());
}

class FaultySocket implements WebSocketLike {
  readonly #inner: WebSocketLike;
  readonly #faults: Faults;
  readonly #listeners: Record<string, Listener[]> = {};
  #isCut = false;

  constructor(inner: WebSocketLike, faults: Faults) {
    this.#inner = inner;
    this.#faults = faults;
    inner.binaryType = "arraybuffer";
    inner.addEventListener("open", () => this.#emit("open", {}));
    inner.addEventListener("error", (event) => this.#emit("error", event as object));
    inner.addEventListener("close", (event) => this.#emit("close", event));
    inner.addEventListener("message", ({ data }) => this.#receive(data));
  }

  binaryType = "arraybuffer";

  addEventListener(type: string, listener: Listener): void {
    (this.#listeners[type] ??= []).push(listener);
  }

  send(data: string | Uint8Array): void {
    if (this.#isCut) return;
    const fate = this.#faults.onSend?.(data) ?? "pass";
    if (fate === "pass") this.#inner.send(data);
    else if (fate === "cut") this.#cut();
    else {
      queueMicrotask(() => {
        for (const answer of fate.answer) this.#emit("message", { data: answer });
      });
    }
  }

  close(code?: number, reason?: string): void {
    this.#inner.close(code, reason);
  }

  keepAlive(isNeeded: boolean): void {
    this.#inner.keepAlive?.(isNeeded);
  }

  #receive(data: unknown): void {
    if (this.#isCut) return;
    const message = data instanceof ArrayBuffer ? new Uint8Array(data) : String(data);
    const fate = this.#faults.onReceive?.(message) ?? "pass";
    if (fate === "pass") return this.#emit("message", { data });
    if (fate === "swallow") return;
    if (typeof fate === "object" && "instead" in fate) {
      for (const other of fate.instead) this.#emit("message", { data: other });
      return;
    }
    if (fate !== "cut" && typeof message !== "string" && fate.cutAfterBytes > 0) {
      this.#emit("message", { data: message.slice(0, binaryHeader.bytes + fate.cutAfterBytes).buffer });
    }
    this.#cut();
  }

  #cut(): void {
    this.#isCut = true;
    this.#inner.close();
    this.#emit("close", { code: 1006, reason: "" });
  }

  #emit(type: string, event: object): void {
    if (type !== "close" || !this.#isCut || "reason" in event) {
      for (const listener of this.#listeners[type] ?? []) listener(event as never);
    }
  }
}

/** Lets this many bytes of output through and then breaks the connection. */
export function cutAfterOutput(bytes: number): Faults {
  let left = bytes;
  return {
    onReceive: (message) => {
      if (typeof message === "string") return "pass";
      const length = message.length - binaryHeader.bytes;
      if (length > left) return { cutAfterBytes: left };
      left -= length;
      return "pass";
    },
  };
}

/** A `fetch` whose body breaks off after `afterBytes`, the first time that a body has the type. */
export function cutBody(inner: typeof fetch, type: string, afterBytes: number): typeof fetch {
  let isCut = false;
  return async (input, init) => {
    const response = await inner(input, init);
    if (isCut || response.body === null || response.headers.get("content-type")?.includes(type) !== true)
      return response;
    isCut = true;
    let left = afterBytes;
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        if (chunk.length <= left) controller.enqueue(chunk);
        else {
          if (left > 0) controller.enqueue(chunk.slice(0, left));
          controller.error(new TypeError("terminated"));
        }
        left -= Math.min(left, chunk.length);
      },
    });
    const { status, headers } = response;
    return new Response(response.body.pipeThrough(cut), { status, headers });
  };
}
