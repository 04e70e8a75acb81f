import { UsageError } from "./usage-error.ts";

const unitBytes = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 } as const;

/** Parses `512m`, `2GiB` or `1048576`; units are powers of 1024. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?$/i.exec(text);
  if (match === null) {
    throw new UsageError(`Cannot read ${JSON.stringify(text)} as a size`, "Write it as 512m, 2g or a number of bytes.");
  }
  const unit = (match[2] ?? "").toLowerCase() as keyof typeof unitBytes;
  return Math.round(Number(match[1]) * unitBytes[unit]);
}
