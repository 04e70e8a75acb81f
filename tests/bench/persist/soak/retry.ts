import { setTimeout as sleep } from "node:timers/promises";
import { errorCodes } from "@atoll/protocol";
import type { ApiAnswer } from "../../../support/api-client.ts";

const patienceMs = 180_000;
const pauseMs = 50;

/** A request was repeated for as long as patience lasts and never succeeded. */
export class StuckError extends Error {}

/** Repeats a request for as long as the error says that a retry may help. */
export async function retryUntilOk<T>(what: string, signal: AbortSignal, ask: () => Promise<ApiAnswer<T>>): Promise<T> {
  const endMs = performance.now() + patienceMs;
  for (;;) {
    const { answer, problem } = await ask().then(
      (answer) => ({ answer, problem: undefined }),
      (problem: unknown) => ({ answer: undefined, problem }),
    );
    if (answer !== undefined && answer.status < 400) return answer.body;
    signal.throwIfAborted();
    const because = answer?.body.error;
    const said = because === undefined ? String(problem) : `${because.code}: ${because.message}`;
    if (because !== undefined && !isRetryable(because.code)) throw new Error(`${what}: ${said}`);
    if (performance.now() > endMs) throw new StuckError(`${what}: ${said}`);
    await sleep(pauseMs, undefined, { signal });
  }
}

function isRetryable(code: string): boolean {
  return code in errorCodes && errorCodes[code as keyof typeof errorCodes].retryable;
}
