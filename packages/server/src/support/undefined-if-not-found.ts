import { isSandboxError } from "@atoll/protocol";

/** Nothing, where what is asked about is not there. */
export function undefinedIfNotFound<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if (isSandboxError(error, "not_found")) return undefined;
    throw error;
  }
}
