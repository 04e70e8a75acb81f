import { deadlineAfter, firstToAbort } from "@atoll/protocol";
import type { Finding } from "./finding.ts";
import {
  checkCgroups,
  checkDisk,
  checkGuest,
  checkPrograms,
  checkRunsc,
  checkStart,
  kernelChecks,
} from "./machine-facts.ts";

export type { Finding } from "./finding.ts";

export interface DoctorOptions {
  dataDir: string;
  /** The guest's binary, as set-up builds it. */
  guestPath: string;
  /** Where runsc is, if not on the usual paths. */
  runscPath?: string;
  /**
   * Starts a sandbox and ends it: what no look at the machine can replace. Not asked when something is missing already.
   */
  probeStart?: () => Promise<void>;
  signal?: AbortSignal;
}

export interface DoctorReport {
  findings: Finding[];
}

const mostMs = 120_000;

/**
 * Looks at everything that sandboxes need of the machine and says what to do about what is not there. Changes nothing.
 */
export async function doctor(options: DoctorOptions): Promise<DoctorReport> {
  const deadline = deadlineAfter(mostMs);
  using signal = firstToAbort(options.signal, deadline);
  const findings = await Promise.all([
    ...kernelChecks.map((check) => check()),
    checkCgroups(),
    checkDisk(options.dataDir),
    checkGuest(options.guestPath, signal),
    checkRunsc(options.runscPath),
  ]);
  findings.push(...(await checkPrograms()));
  const isMissing = findings.some(({ status }) => status === "missing");
  if (options.probeStart !== undefined && !isMissing) findings.push(await checkStart(options.probeStart));
  return { findings };
}

/** For a terminal: a line per finding, and below the ones that are not ok what they need and what to do. */
export function formatDoctor({ findings }: DoctorReport): string {
  const statusWidth = Math.max(0, ...findings.map(({ status }) => status.length));
  const nameWidth = Math.max(0, ...findings.map(({ name }) => name.length));
  const lines = findings.flatMap(({ name, status, found, needs, fix, affects }) => {
    const indent = " ".repeat(statusWidth + 2);
    const line = `${status.padEnd(statusWidth)}  ${name.padEnd(nameWidth)}  ${found}`;
    if (status === "ok") return [line];
    const more = [
      needs === undefined ? [] : `needs:   ${needs}`,
      fix === undefined ? [] : `fix:     ${fix}`,
      `affects: ${affects}`,
    ];
    return [line, ...more.flat().map((text) => `${indent}${text}`)];
  });
  return lines.join("\n");
}
