import { Finding } from "@atoll/guard";
import { z } from "zod";
import { Dependency, Diagnostic } from "../compiler/artifact.ts";

/** The number of generations that are kept, and of versions of each module. */
const maxHistory = 10;

export const ModuleVersion = z.strictObject({
  /** Counted per module from 1; the same code has the same number. */
  number: z.int(),
  sourceSha256: z.string(),
  codeSha256: z.string(),
  compiler: z.string(),
  /** When it was first used. */
  at: z.string(),
  dependencies: z.array(Dependency),
  /** What the scan found; absent in histories that were stored before there was a scan. */
  findings: z.array(Finding).optional(),
});
export type ModuleVersion = z.infer<typeof ModuleVersion>;

export const Generation = z.strictObject({
  /** Counted per app from 1; the same versions of all modules are the same generation. */
  number: z.int(),
  /** The version of each module. */
  modules: z.record(z.string(), z.int()),
  /** When it was first used, and why. */
  at: z.string(),
  cause: z.enum(["start", "request", "watch", "rollback"]),
  /** It held through its probation, or the app started with it. */
  isGood: z.boolean(),
  /** What the type checker found, once it has looked. */
  diagnostics: z.array(Diagnostic).optional(),
  /** Why it was left by the app itself. */
  failure: z.string().optional(),
});
export type Generation = z.infer<typeof Generation>;

/** What is stored for an app. The code is beside it, by checksum. */
export const History = z.strictObject({
  format: z.literal(1),
  folder: z.string(),
  current: z.int(),
  lastGood: z.int(),
  /** The highest number that was given. */
  lastNumber: z.int(),
  generations: z.array(Generation),
  modules: z.record(z.string(), z.strictObject({ lastNumber: z.int(), versions: z.array(ModuleVersion) })),
});
export type History = z.infer<typeof History>;

export const emptyHistory = (folder: string): History => ({
  format: 1,
  folder,
  current: 0,
  lastGood: 0,
  lastNumber: 0,
  generations: [],
  modules: {},
});

/** Drops the oldest generations and versions. The current and the last good generation always stay complete. */
export function bounded(history: History): History {
  const { current, lastGood } = history;
  const needed = history.generations.filter(({ number }) => number === current || number === lastGood);
  const others = history.generations.filter((generation) => !needed.includes(generation));
  const kept = [...needed, ...others.toSorted(newestFirst).slice(0, maxHistory - needed.length)];
  const generations = kept.toSorted((a, b) => a.number - b.number);
  const modules = Object.entries(history.modules).flatMap(([module, { lastNumber, versions }]) => {
    const used = new Set(generations.map((generation) => generation.modules[module]));
    if ([...used].every((number) => number === undefined)) return [];
    const inUse = versions.filter(({ number }) => used.has(number));
    const rest = versions.filter(({ number }) => !used.has(number)).toSorted(newestFirst);
    const all = [...inUse, ...rest.slice(0, Math.max(0, maxHistory - inUse.length))];
    return [[module, { lastNumber, versions: all.toSorted((a, b) => a.number - b.number) }] as const];
  });
  return { ...history, generations, modules: Object.fromEntries(modules) };
}

const newestFirst = (a: { number: number }, b: { number: number }): number => b.number - a.number;
