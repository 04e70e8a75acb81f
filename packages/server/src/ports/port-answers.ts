import type { ServerResponse } from "node:http";
import { isSandboxError } from "@atoll/protocol";
import type { PortAddress } from "./port-address.ts";
import { isRefused } from "./wait-for-port.ts";

/** A reply of the proxy itself, as text for a browser or a terminal. */
export interface PortReply {
  status: number;
  text: string;
}

/** The reply is the same for a wrong token and for a sandbox that does not exist. */
export const wrongToken: PortReply = {
  status: 403,
  text: "This port is guarded. Open the URL with ?atoll_token=<token>, or send the token as X-Port-Token.",
};

export const tooManyConnections: PortReply = {
  status: 503,
  text: "This sandbox has too many open connections. Close some and try again.",
};

export function explainFailure(error: unknown, { sandboxId, port }: PortAddress): PortReply {
  if (isRefused(error)) {
    return { status: 502, text: `Nothing listens on port ${port} in sandbox ${sandboxId}.` };
  }
  if (isSandboxError(error, "sandbox_ended") || isSandboxError(error, "not_found")) {
    return { status: 410, text: `Sandbox ${sandboxId} has ended.` };
  }
  if (isSandboxError(error, "permission_denied")) return { status: 403, text: `${error.message}.` };
  if (isSandboxError(error, "invalid_state") || isSandboxError(error, "guest_silent")) {
    return { status: 503, text: `${error.message}.` };
  }
  if (error instanceof Error && error.name === "TimeoutError") {
    return { status: 504, text: `Port ${port} in sandbox ${sandboxId} did not accept the connection in time.` };
  }
  return {
    status: 502,
    text: `What listens on port ${port} in sandbox ${sandboxId} did not answer as an HTTP server does.`,
  };
}

export function sendText(response: ServerResponse, { status, text }: PortReply): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    // The rest of a body would be taken for the next request.
    connection: "close",
  });
  response.end(`${text}\n`);
}
