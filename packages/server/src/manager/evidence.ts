import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { auditLines, type AuditLog, type ThreatReport } from "@atoll/guard";
import { pack, writeDurably } from "@atoll/host";
import type { ListedCheckpoint } from "@atoll/protocol";
import type { ManagedSandbox } from "./managed-sandbox.ts";

export interface EvidenceSources {
  log: AuditLog;
  reports: readonly ThreatReport[];
  checkpoints: ListedCheckpoint[];
}

/**
 * Writes down what is known about a sandbox beside its commands: the sandbox, the signs of an attack, its checkpoints,
 * and all lines about it in the audit log, with the head of the log that proves them.
 */
export async function writeEvidence(managed: ManagedSandbox, name: string, sources: EvidenceSources): Promise<void> {
  const { log, reports, checkpoints } = sources;
  const dir = join(managed.sandbox.ownerDir, "evidence");
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const about = { writtenAtMs: Date.now(), sandbox: managed.info(), reports, checkpoints, auditHead: log.head };
  await writeDurably(join(dir, `${name}.json`), `${JSON.stringify(about, undefined, 2)}\n`);
  await using file = await open(join(dir, `${name}-audit.jsonl`), "w", 0o600);
  for await (const text of auditLines(log.dir, managed.id)) await file.write(`${text}\n`);
}

/** Yields the evidence and the commands of a sandbox, with their output, as a tar archive. */
export function packEvidence({ sandbox }: ManagedSandbox, signal: AbortSignal): AsyncIterable<Uint8Array> {
  return pack(sandbox.ownerDir, {
    signal,
    onSkipped: () => undefined,
    includes: (path) => /^(evidence|commands)(\/|$)/.test(path),
  });
}
