import type { ServerResponse } from "node:http";

/** Calls `act` when the reply is over, however it ends, also if the client left before. */
export function whenClosed(response: ServerResponse, act: () => void): void {
  if (response.destroyed || response.closed) act();
  else response.once("close", act);
}
