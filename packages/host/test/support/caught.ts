/** What a promise rejects with; an error of its own if it does not. */
export async function caught(promise: Promise<unknown>): Promise<unknown> {
  let value: unknown;
  try {
    value = await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`Nothing was thrown, it is ${String(value)}`);
}
