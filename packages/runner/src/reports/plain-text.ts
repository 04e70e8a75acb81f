/** A duration for a person: `340 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`. */
export function formatMs(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Text that moves no cursor and turns no line around: control characters are replaced, line breaks are kept. */
export const plain = (text: string): string =>
  text
    .replaceAll(/\p{Surrogate}/gu, "\uFFFD")
    // oxlint-disable-next-line no-control-regex -- control characters are what is replaced
    .replaceAll(/[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F\u202A-\u202E\u2066-\u2069\uFFFE\uFFFF]/g, "\uFFFD");
