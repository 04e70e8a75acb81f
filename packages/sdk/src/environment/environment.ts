import type { Exchange } from "../http/exchange.ts";

/** The part of a WebSocket that is used here; that of browsers and that of `ws` both have it. */
export interface WebSocketLike {
  binaryType: string;
  send(data: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: "open", listener: () => void): void;
  addEventListener(type: "message", listener: (event: { data: unknown }) => void): void;
  addEventListener(type: "close", listener: (event: { code: number; reason: string }) => void): void;
  addEventListener(type: "error", listener: (event: unknown) => void): void;
  /** Sets, where the runtime can, whether the open socket keeps the program alive. */
  keepAlive?(isNeeded: boolean): void;
}

/** What differs between runtimes. `#environment` is the one for the runtime that loads the package. */
export interface Environment {
  readVariable(name: "ATOLL_API_KEY" | "ATOLL_API_URL"): string | undefined;
  exchange: Exchange;
  openWebSocket(url: string): Promise<WebSocketLike>;
  /** Makes a timer not keep the program alive, in runtimes that have this. */
  detachTimer(timer: unknown): void;
}
