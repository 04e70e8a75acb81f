/**
 * Works like `Promise.all`, but all promises have settled when it settles: for work that is undone if any of it fails.
 */
export async function settleAll<T extends readonly unknown[]>(
  work: T,
): Promise<{ -readonly [K in keyof T]: Awaited<T[K]> }> {
  await Promise.allSettled(work);
  return Promise.all(work);
}
