import { Script } from "node:vm";

const key = Symbol.for("atoll.live.guarded");
const script = new Script(`globalThis[Symbol.for("atoll.live.guarded")]()`);
const holder = globalThis as { [key]?: (() => unknown) | undefined };

class Interrupted extends Error {
  override readonly name = "Interrupted";
}

/**
 * Runs a function of the app and interrupts it when it does not return in time, without harm to anything else in the
 * process. What comes after its first `await` is not bounded.
 */
export function guarded<T>(work: () => T, timeoutMs: number): T {
  const before = holder[key];
  let result: { value: T } | undefined;
  holder[key] = () => {
    result = { value: work() };
  };
  try {
    script.runInThisContext({ timeout: timeoutMs });
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") {
      throw new Interrupted(`it did not return within ${timeoutMs} ms`);
    }
    throw error;
  } finally {
    holder[key] = before;
  }
  if (result === undefined) throw new Error("nothing was run");
  return result.value;
}

/** Rejects when what was awaited does not come in time, so that nothing waits for ever. */
export async function within<T>(awaited: T | Promise<T>, timeoutMs: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Interrupted(`${what} was not done within ${timeoutMs} ms`)), timeoutMs);
  });
  try {
    return await Promise.race([awaited, late]);
  } finally {
    clearTimeout(timer);
  }
}
