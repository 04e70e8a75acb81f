import { stat } from "node:fs/promises";
import { hasErrno, run } from "@atoll/host";
import { deadlineAfter, SandboxError } from "@atoll/protocol";
import { findProgram } from "./find-program.ts";

/**
 * The first release with the systrap platform, a working statx and checkpoints of a container whose root is an overlay
 * of the host.
 */
export const minimumRunscDate = 20_240_729;

/**
 * From this release on, systrap checks its latencies ten times a second while nothing runs, and no longer every 400 µs.
 */
const idleForFreeDate = 20_260_622;

/**
 * The better platform comes first. KVM is left out: it hangs where virtual machines cannot be nested, and only a start
 * would show that.
 */
const usablePlatforms = ["systrap", "ptrace"] as const;
type RunscPlatform = (typeof usablePlatforms)[number];

const neededFlags = ["root", "platform", "network", "overlay2", "ignore-cgroups"];

const askTimeoutMs = 20_000;

/** The features of a runsc, as the program itself reports them. */
export interface Runsc {
  path: string;
  version: string;
  /** The date as YYYYMMDD; undefined for a build without a release. */
  date: number | undefined;
  /** The supported platforms, the best first. There is at least one. */
  platforms: RunscPlatform[];
  flags: ReadonlySet<string>;
  subcommands: ReadonlySet<string>;
}

const known = new Map<string, { stamp: string; runsc: Promise<Runsc> }>();

/**
 * Finds runsc, on the usual paths unless one is given, and asks it for its features; once for each program, until that
 * changes. Rejects with `unsupported`, saying how to fix it, when there is none or it lacks a needed feature.
 */
export async function detectRunsc(path?: string): Promise<Runsc> {
  const found = path ?? (await findProgram("runsc"));
  if (found === undefined) throw unusable("runsc is not installed");
  const stamp = await stampOf(found);
  const before = known.get(found);
  if (before?.stamp === stamp) return before.runsc;
  const runsc = ask(found);
  known.set(found, { stamp, runsc });
  // A failed query is not cached: the next one may succeed.
  runsc.catch(() => known.delete(found));
  return runsc;
}

async function stampOf(path: string): Promise<string> {
  try {
    const { ino, size, mtimeMs } = await stat(path);
    return `${ino} ${size} ${mtimeMs}`;
  } catch (cause) {
    if (hasErrno(cause, "ENOENT", "ENOTDIR", "EACCES")) throw unusable(`there is no runsc at ${path}`, cause);
    throw cause;
  }
}

async function ask(path: string): Promise<Runsc> {
  const [version, flags, platforms, help] = await Promise.all([
    output(path, ["--version"]),
    output(path, ["flags"]),
    output(path, ["help", "platforms"]),
    output(path, ["help"]),
  ]);
  return parseRunsc(path, { version, flags, platforms, help });
}

/**
 * Says whether an idle sandbox uses no processor time. For a build without a release the answer is no, which costs
 * nothing if it is wrong.
 */
export function idlesForFree({ date }: Pick<Runsc, "date">): boolean {
  return date !== undefined && date >= idleForFreeDate;
}

/** Returns the features of this processor that runsc has a name for. Needs the subcommand `cpu-features`. */
export async function askCpuFeatures({ path }: Pick<Runsc, "path">): Promise<string[]> {
  const said = await output(path, ["cpu-features"]);
  return said.split(/[\s,]+/).filter((name) => name !== "");
}

async function output(path: string, args: string[]): Promise<string> {
  const signal = deadlineAfter(askTimeoutMs);
  try {
    const { stdout, stderr } = await run(path, args, { signal, timeoutMs: askTimeoutMs });
    // runsc prints its flags to stdout or stderr, depending on the release.
    return `${stdout}\n${stderr}`;
  } catch (cause) {
    throw unusable(`${path} does not run`, cause);
  }
}

/** Checks what runsc reports about itself: its `--version`, `flags`, `help platforms` and `help`. */
export function parseRunsc(
  path: string,
  said: { version: string; flags: string; platforms: string; help: string },
): Runsc {
  const version = /^runsc version (\S+)/m.exec(said.version)?.[1];
  if (version === undefined) throw unusable(`${path} is not runsc`);
  const date = dateOf(version);
  if (date !== undefined && date < minimumRunscDate) {
    throw unusable(`${path} is of ${date}, and ${minimumRunscDate} or newer is needed`);
  }
  const flags = new Set([...said.flags.matchAll(/^\s+--?([\w-]+)/gm)].flatMap(([, name]) => name ?? []));
  const lacking = neededFlags.filter((name) => !flags.has(name));
  if (lacking.length > 0) throw unusable(`${path} lacks ${lacking.map((name) => `--${name}`).join(", ")}`);
  const words = new Set(said.platforms.split(/\s+/));
  const platforms = usablePlatforms.filter((name) => words.has(name));
  // A build without a date is recognized by the platform that came with the first supported release.
  const isTooOld = platforms.length === 0 || (date === undefined && !platforms.includes("systrap"));
  if (isTooOld) throw unusable(`${path} has no platform that we can use`);
  const subcommands = new Set([...said.help.matchAll(/^\t([\w-]+) /gm)].flatMap(([, name]) => name ?? []));
  return { path, version, date, platforms, flags, subcommands };
}

/** Reads the date from the forms `release-20240729.0` and Debian's `0.0~20240729.0`. */
function dateOf(version: string): number | undefined {
  const digits = /(?:release-|\d~)(\d{8})\b/.exec(version)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

function unusable(reason: string, cause?: unknown): SandboxError {
  return new SandboxError("unsupported", `Cannot run sandboxes under gVisor: ${reason}`, {
    cause,
    suggestion: installRunsc,
    details: { minimumDate: minimumRunscDate },
  });
}

export const installRunsc = "npm run setup (on Debian and Ubuntu; elsewhere see gVisor's installation page)";
