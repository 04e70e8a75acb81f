import type { Cli } from "../cli.ts";
import { printable } from "./printable.ts";

/** A name and what is so; without a value it is left out. */
export type Fact = readonly [name: string, value: string | undefined];

/** A line per fact: aligned on a terminal, with a tab between elsewhere. */
export async function printFacts(cli: Cli, facts: readonly Fact[]): Promise<void> {
  const present = facts.filter(([, value]) => value !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  const lines = present.map(([name, value = ""]) =>
    cli.isTerminal
      ? `${cli.style("quiet", printable(name).padEnd(width))}  ${printable(value)}`
      : `${printable(name)}\t${printable(value)}`,
  );
  await cli.write(lines.map((line) => `${line}\n`).join(""));
}
