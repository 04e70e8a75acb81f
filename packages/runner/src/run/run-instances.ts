import { mkdir, rm, statfs } from "node:fs/promises";
import { availableParallelism, freemem } from "node:os";
import { join } from "node:path";
import { writeDurably } from "@atoll/host";
import { deadlineAfter, firstToAbort, SandboxError } from "@atoll/protocol";
import type { RunEvent, RunEventBody } from "../journal/events.ts";
import { Journal } from "../journal/journal.ts";
import { foldEvents } from "../journal/run-state.ts";
import { type InstanceReport, type RunReport } from "../models/report.ts";
import { countVerdicts } from "../reports/stored-run.ts";
import { writeReports } from "../reports/write-reports.ts";
import { runSession } from "../session/run-session.ts";
import type { SessionItem, SessionServices } from "../session/session.ts";
import { version } from "../version.ts";
import { Durations } from "./durations.ts";
import { sessionItems } from "./run-items.ts";
import type { RunOptions } from "./run-options.ts";
import { lockRun, removeLeftovers, thisProcess } from "./run-owner.ts";
import { servicesFor } from "./session-services.ts";
import { WeightedPool } from "./weighted-pool.ts";

/** A run promises its sandboxes at most this share of the memory and the disk that are free when it begins. */
const usableShare = 0.9;

const pruneTimeoutMs = 5 * 60_000;

/**
 * Runs every item to its verdict. A failure of one item is its verdict and not an error; rejects with `SandboxError`
 * only when the run as a whole cannot go on, such as with a directory that cannot be written.
 */
export async function runInstances(options: RunOptions): Promise<RunReport> {
  const { runId, directory, client, signal } = options;
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$/.test(runId)) {
    throw new SandboxError("invalid_argument", `Cannot run "${runId}": that is no name for a run`, {
      suggestion: "Use up to 100 letters, digits, '.', '_' and '-'.",
    });
  }
  signal.throwIfAborted();
  const items = sessionItems(options);
  await mkdir(directory, { recursive: true });
  const owner = await thisProcess();
  await using _lock = await lockRun(directory, owner);
  await rm(join(directory, "scratch"), { recursive: true, force: true });
  const { journal, events } = await Journal.open(join(directory, "events.ndjson"));
  await using _journal = journal;
  const before = foldEvents(events);
  const emit = (body: RunEventBody): RunEvent => {
    const event = journal.append(body);
    options.onEvent?.(event);
    return event;
  };
  const { pid, bootId } = owner;
  const { jobs = 1, repeat = 1 } = options;
  const start = emit({
    type: "run.start",
    runId,
    pid,
    bootId,
    instances: items.map(({ label }) => label),
    options: { jobs, repeat },
  });
  await journal.sync();
  await removeLeftovers(client, runId);
  const reports = new Map<string, InstanceReport>();
  for (const { label, key } of items) {
    const known = before.items.get(label);
    // A failure of ours says nothing about the code: it is tried again.
    if (known?.report?.key === key && known.report.verdict !== "infra_error") reports.set(label, known.report);
  }
  const startMs = performance.now();
  const pending = items.filter(({ label }) => !reports.has(label));
  const services = servicesFor(options, owner, { emit, sync: () => journal.sync() });
  await runPending(options, services, pending, reports);
  const interrupted = reports.size < items.length;
  emit({ type: "run.end", interrupted });
  await journal.sync();
  if (options.cacheBytes !== undefined) {
    await services.snapshots?.prune(options.cacheBytes, deadlineAfter(pruneTimeoutMs));
  }
  const report: RunReport = {
    schemaVersion: 1,
    runId,
    tool: { name: "atoll", version },
    client: client.kind,
    startedAt: before.startedAt === "" ? start.at : before.startedAt,
    durationMs: performance.now() - startMs,
    interrupted,
    counts: countVerdicts([...reports.values()]),
    instances: items.flatMap(({ label }) => reports.get(label) ?? []),
  };
  await writeDurably(join(directory, "run_report.json"), `${JSON.stringify(report, undefined, 2)}\n`);
  const finished = items.flatMap(({ label }) => {
    const found = reports.get(label);
    return found === undefined ? [] : [{ label, report: found }];
  });
  const unfinished = items.filter(({ label }) => !reports.has(label)).map(({ label }) => label);
  await writeReports({ directory, report, items: finished, unfinished }, ["yaml", "html"]);
  return report;
}

async function runPending(
  options: RunOptions,
  services: SessionServices,
  pending: readonly SessionItem[],
  reports: Map<string, InstanceReport>,
): Promise<void> {
  const { cacheDirectory, drain } = options;
  const durations = await Durations.read(cacheDirectory);
  const expected = ({ instance }: SessionItem): number => durations.expected(instance.id);
  // Two of which nothing is known are equal, although their difference is not a number.
  const longestFirst = pending.toSorted((a, b) => (expected(a) === expected(b) ? 0 : expected(b) - expected(a)));
  const disk = await statfs(cacheDirectory);
  const pool = new WeightedPool(options.jobs ?? 1, {
    cpus: availableParallelism(),
    memoryBytes: freemem() * usableShare,
    diskBytes: disk.bavail * disk.bsize * usableShare,
  });
  // A failure of the run itself, such as a full disk, ends every session: no more of it could be recorded.
  const broken = new AbortController();
  using signal = firstToAbort(options.signal, broken.signal);
  const onDrain = (): void => services.emit({ type: "run.drain" });
  drain?.addEventListener("abort", onDrain, { once: true });
  const runOne = async (item: SessionItem): Promise<void> => {
    if (signal.aborted || drain?.aborted === true) return;
    const { label, key, instance } = item;
    services.emit({ type: "instance.start", instance: label, key });
    try {
      const report = await runSession(services, item, signal);
      services.emit({ type: "instance.end", instance: label, key, report });
      await services.sync();
      reports.set(label, report);
      durations.record(instance.id, report.durationMs);
    } catch (error) {
      if (!signal.aborted) broken.abort(error);
    }
  };
  try {
    await Promise.all(longestFirst.map((item) => pool.run(item.instance.task.sandbox.limits, () => runOne(item))));
  } finally {
    drain?.removeEventListener("abort", onDrain);
  }
  if (broken.signal.aborted && !options.signal.aborted) throw broken.signal.reason;
  await durations.write();
}
