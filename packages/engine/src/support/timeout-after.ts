/** Aborts when so much time has passed since `begin` has resolved. */
export function timeoutAfter(begin: Promise<unknown>, ms: number): AbortSignal {
  const controller = new AbortController();
  const start = (): void => {
    setTimeout(() => controller.abort(new Error(`${ms} ms have passed`)), ms).unref();
  };
  begin.then(start, () => undefined);
  return controller.signal;
}
