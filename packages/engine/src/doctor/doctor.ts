import { deadlineAfter, firstToAbort } from "@atoll/protocol";
import type { Finding } from "./finding.ts";
import {
  checkCgroups,
  checkDisk,
  checkGuest,
  checkLeftovers,
  checkPrograms,
  checkRunsc,
  checkStart,
  kernelChecks,
} from "./machine-facts.ts";

export type { Finding } from "./finding.ts";

export interface DoctorOptions {
  dataDir: string;
  /** The path of the guest's binary, which set-up builds. */
  guestPath: string;
  /** The path of runsc, if it is not on the usual paths. */
  runscPath?: string;
  /**
   * Starts a sandbox and ends it, which proves more than any check. It is not called when a check has failed already.
   */
  probeStart?: () => Promise<void>;
  /** Finds what ended sandboxes have left on this machine; without it, that is not looked for. */
  findLeftovers?: () => Promise<{ what: string }[]>;
  signal?: AbortSignal;
}

export interface DoctorReport {
  findings: Finding[];
}

const mostMs = 120_000;

/** Checks everything that sandboxes need of the machine and says how to fix what is missing. Changes nothing. */
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
  if (options.findLeftovers !== undefined) findings.push(await checkLeftovers(options.findLeftovers));
  const isMissing = findings.some(({ status }) => status === "missing");
  if (options.probeStart !== undefined && !isMissing) findings.push(await checkStart(options.probeStart));
  return { findings };
}

/**
 * Formats the report for a terminal: a line per finding, and for each that is not ok what it needs and how to fix it.
 */
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
