import type { AppLimits } from "./app-host.ts";

const MiB = 1024 * 1024;

/** Flags that keep an app small and take away what hot reload does not need. They are a seat belt, and no wall. */
export function nodeFlags(limits: Pick<AppLimits, "memoryBytes">): string[] {
  // Buffers, code and stacks are outside of the heap.
  const heapMiB = Math.max(16, Math.floor((limits.memoryBytes / MiB) * 0.75));
  return [
    `--max-old-space-size=${heapMiB}`,
    // Reloads make garbage that dies young; a small young generation keeps the process small.
    "--max-semi-space-size=1",
    "--disallow-code-generation-from-strings",
    "--experimental-import-meta-resolve",
    "--no-warnings",
  ];
}
