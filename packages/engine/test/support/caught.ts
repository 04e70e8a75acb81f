/** Resolves to what a promise rejects with; throws an error of its own if the promise does not reject. */
export async function caught(promise: Promise<unknown>): Promise<unknown> {
  let value: unknown;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`Nothing was thrown, it is ${String(value)}`);
}
