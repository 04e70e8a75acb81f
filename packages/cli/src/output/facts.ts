import type { Cli } from "../cli.ts";
import { formatBytes } from "./amount.ts";
import { printable } from "./printable.ts";

/** A name and what is so; without a value it is left out. `plain`: for programs, where that is different. */
export type Fact = readonly [name: string, value: string | undefined, plain?: string];

/** For eyes about so many, for programs exactly. */
export function bytesFact(name: string, bytes: number): Fact {
  return [name, formatBytes(bytes), String(bytes)];
}

/** A line per fact: aligned on a terminal, with a tab between elsewhere. */
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
