import type { ThreatKind } from "@atoll/protocol";

/** One sign that code attacks what surrounds it. */
export interface ThreatReport {
  atMs: number;
  kind: ThreatKind;
  details: string;
}

/** Enough signs of one kind that the subject has to be isolated. */
export interface Threat {
  id: string;
  kind: ThreatKind;
  reason: string;
}

export interface ThreatLedgerOptions {
  /** How many reports of a kind within the window are a threat; 0 means that they never are. */
  thresholds: Readonly<Record<ThreatKind, number>>;
  windowMs: number;
  onThreat: (threat: Threat) => void;
}

const names: Readonly<Record<ThreatKind, string>> = {
  protocol_violation: "it broke the protocol between host and guest",
  seccomp_kill: "the kernel stopped a forbidden system call",
  limit_violations: "it reached its limits again and again",
  operator: "an operator isolated it",
};

/** How many reports of a subject are kept, the newest. */
const mostReports = 100;

/** Counts signs of attacks per subject, and reports a threat when there are enough of one kind in a time. */
export class ThreatLedger {
  readonly #options: ThreatLedgerOptions;
  readonly #reports = new Map<string, ThreatReport[]>();

  constructor(options: ThreatLedgerOptions) {
    this.#options = options;
  }

  report(id: string, kind: ThreatKind, details: string, nowMs: number = Date.now()): void {
    const { thresholds, windowMs, onThreat } = this.#options;
    const recent = this.reportsOf(id).filter(({ atMs }) => nowMs - atMs < windowMs);
    const reports = [...recent, { atMs: nowMs, kind, details: details.slice(0, 500) }].slice(-mostReports);
    this.#reports.set(id, reports);
    const count = reports.filter((report) => report.kind === kind).length;
    if (thresholds[kind] === 0 || count < thresholds[kind]) return;
    const times = count === 1 ? "" : `, ${count} times in ${Math.round(windowMs / 60_000)} minutes`;
    onThreat({ id, kind, reason: `${names[kind]}${times}: ${details.slice(0, 500)}` });
  }

  reportsOf(id: string): readonly ThreatReport[] {
    return this.#reports.get(id) ?? [];
  }

  forget(id: string): void {
    this.#reports.delete(id);
  }
}
