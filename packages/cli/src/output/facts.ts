import type { Cli } from "../cli.ts";
import { formatBytes } from "./amount.ts";
import { printable } from "./printable.ts";

/** A name and its value; a fact without a value is left out. `plain` is the value for programs, where it differs. */
export type Fact = readonly [name: string, value: string | undefined, plain?: string];

/** Rounds the value on a terminal; programs get the exact number. */
export function bytesFact(name: string, bytes: number): Fact {
  return [name, formatBytes(bytes), String(bytes)];
}

/** Prints a line per fact: aligned on a terminal, otherwise with a tab between name and value. */
export async function printFacts(cli: Cli, facts: readonly Fact[]): Promise<void> {
  const present = facts.filter(([, value]) => value !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  const lines = present.map(([name, value = "", plain = value]) =>
    cli.isTerminal
      ? `${cli.style("quiet", printable(name).padEnd(width))}  ${printable(value)}`
      : `${printable(name)}\t${printable(plain)}`,
  );
  await cli.write(lines.map((line) => `${line}\n`).join(""));
}
