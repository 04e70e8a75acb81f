import { UsageError } from "./usage-error.ts";

export type Pairs = Record<string, string>;

/** Collects an option that may be given several times, each `NAME=value`. */
export function collectPairs(what: string): (text: string, before: Pairs | undefined) => Pairs {
  return (text, before) => {
    const at = text.indexOf("=");
    if (at < 1) {
      throw new UsageError(`Cannot read ${JSON.stringify(text)} as ${what}`, "Write it as NAME=value.");
    }
    return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
  };
}

/** Collects an option that may be given several times. */
export function collect(text: string, before: string[] | undefined): string[] {
  return [...(before ?? []), text];
}
