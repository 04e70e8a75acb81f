import { isSandboxError } from "@atoll/protocol";

/** Returns undefined instead of throwing `not_found`. */
export function undefinedIfNotFound<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if (isSandboxError(error, "not_found")) return undefined;
    throw error;
  }
}
