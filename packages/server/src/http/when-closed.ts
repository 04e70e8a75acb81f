import type { ServerResponse } from "node:http";

/** Once the answer is over, whatever its end: also if its client went away before, while something was waited for. */
export function whenClosed(response: ServerResponse, act: () => void): void {
  if (response.destroyed || response.closed) act();
  else response.once("close", act);
}
