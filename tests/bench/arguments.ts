import { parseArgs } from "node:util";
import { DriverName } from "@atoll/protocol";

export interface Arguments {
  /** The prefix of the names of the benchmarks to run; the empty string selects all. */
  only: string;
  isQuick: boolean;
  jsonFile: string | undefined;
  /** The driver for benchmarks without a rival. */
  driver: DriverName;
  /** The seed for random choices; undefined means that any will do. */
  seed: number | undefined;
  wantsHelp: boolean;
}

/** The user asked for something that does not exist. The message says what to do. */
export class UsageError extends Error {}

const flags = {
  only: { type: "string" },
  quick: { type: "boolean" },
  json: { type: "string" },
  driver: { type: "string" },
  seed: { type: "string" },
  help: { type: "boolean", short: "h" },
} as const;

/** A name that differs in more letters is a different name, not a slip. */
const mostSlips = 3;

export function parseArguments(argv: readonly string[], benchmarkNames: readonly string[]): Arguments {
  const { tokens } = parseArgs({
    args: [...argv],
    options: flags,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  const parsed: Arguments = {
    only: "",
    isQuick: false,
    jsonFile: undefined,
    driver: "gvisor",
    seed: undefined,
    wantsHelp: false,
  };
  for (const token of tokens) {
    if (token.kind === "option-terminator") continue;
    if (token.kind === "positional") {
      throw new UsageError(`Cannot use ${JSON.stringify(token.value)}: choose benchmarks with --only <prefix>`);
    }
    switch (token.name) {
      case "only":
        parsed.only = requireBenchmark(requireValue(token.rawName, token.value), benchmarkNames);
        break;
      case "json":
        parsed.jsonFile = requireValue(token.rawName, token.value);
        break;
      case "driver":
        parsed.driver = requireDriver(requireValue(token.rawName, token.value));
        break;
      case "seed":
        parsed.seed = requireSeed(requireValue(token.rawName, token.value));
        break;
      case "quick":
        parsed.isQuick = requireNoValue(token.rawName, token.value);
        break;
      case "help":
        parsed.wantsHelp = requireNoValue(token.rawName, token.value);
        break;
      default:
        throw new UsageError(
          `Cannot use ${token.rawName}: there is no such option.${suggest(token.name, Object.keys(flags), "--")}`,
        );
    }
  }
  return parsed;
}

export function helpText(benchmarks: readonly { name: string; title: string }[]): string {
  const width = Math.max(...benchmarks.map(({ name }) => name.length));
  return `Usage: npm run bench -- [options]

Measures Atoll and a rival in turns on this machine, prints a table and ends with 1 if a bar is missed.

  --only <prefix>  run only the benchmarks whose names have this prefix
  --quick          run fewer rounds, for an estimate
  --json <file>    write machine, commit and results as JSON
  --driver local   run without gVisor; for benchmarks that have no rival and check correctness
  --seed <number>  repeat the random choices of an earlier run
  --help           print this text

Benchmarks:
${benchmarks.map(({ name, title }) => `  ${name.padEnd(width)}  ${title}`).join("\n")}

docs/benchmarks.md has the method and how to read the table.`;
}

/** Returns the candidate that differs from `word` by only a slip, or undefined. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const ranked = candidates
    .map((candidate) => ({ candidate, distance: editDistance(word, candidate) }))
    .filter(({ candidate, distance }) => distance <= Math.min(mostSlips, candidate.length - 1))
    .toSorted((a, b) => a.distance - b.distance);
  return ranked[0]?.candidate;
}

function suggest(word: string, candidates: readonly string[], prefix = ""): string {
  const close = nearest(word, candidates);
  return close === undefined ? " See --help." : ` Did you mean ${prefix}${close}?`;
}

function requireValue(flag: string, value: string | undefined): string {
  if (value === undefined || value === "") throw new UsageError(`Cannot use ${flag} without a value`);
  return value;
}

function requireDriver(value: string): DriverName {
  const { data } = DriverName.safeParse(value);
  if (data === undefined)
    throw new UsageError(`Cannot use driver ${value}: the drivers are ${DriverName.options.join(", ")}`);
  return data;
}

function requireSeed(value: string): number {
  if (/^\d{1,9}$/.test(value)) return Number(value);
  throw new UsageError(`Cannot use seed ${value}: use a number of at most nine digits`);
}

function requireNoValue(flag: string, value: string | undefined): true {
  if (value !== undefined) throw new UsageError(`Cannot use ${flag} with a value: it takes none`);
  return true;
}

function requireBenchmark(prefix: string, names: readonly string[]): string {
  if (names.some((name) => name.startsWith(prefix))) return prefix;
  throw new UsageError(
    `Cannot select ${JSON.stringify(prefix)}: no benchmark has a name with this prefix.${suggest(prefix, names)}`,
  );
}

/** Counts the insertions, deletions and replacements that turn one word into the other. */
function editDistance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [i, letter] of from.split("").entries()) {
    const next = [i + 1];
    for (const [j, other] of to.split("").entries()) {
      const replaced = (row[j] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
