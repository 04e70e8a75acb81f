import { UsageError } from "./usage-error.ts";

/** Parses an option that is a whole number from `least` to `most`. */
export function wholeNumber(what: string, least: number, most: number): (text: string) => number {
  return (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most)) {
      throw new UsageError(
        `Cannot read ${JSON.stringify(text)} as ${what}`,
        `It is a whole number from ${least} to ${most}.`,
      );
    }
    return value;
  };
}

/** Parses an option that is a number above zero, such as 0.5 cores. */
export function decimal(what: string): (text: string) => number {
  return (text) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (!(value > 0)) throw new UsageError(`Cannot read ${JSON.stringify(text)} as ${what}`, "Write it as 2 or 0.5.");
    return value;
  };
}
