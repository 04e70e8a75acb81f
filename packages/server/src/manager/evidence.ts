import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { auditLines, type AuditLog, type ThreatReport } from "@atoll/guard";
import { pack, writeDurably } from "@atoll/host";
import type { ListedCheckpoint, SandboxId } from "@atoll/protocol";
import type { ManagedSandbox } from "./managed-sandbox.ts";

export interface SandboxEvidenceOptions {
  find: (id: SandboxId) => ManagedSandbox;
  log: AuditLog;
  reportsOf: (id: SandboxId) => readonly ThreatReport[];
  checkpointsOf: (id: SandboxId) => Promise<ListedCheckpoint[]>;
}

/** Collects what is known about a sandbox, for people who look at what it did. */
export class SandboxEvidence {
  readonly #options: SandboxEvidenceOptions;

  constructor(options: SandboxEvidenceOptions) {
    this.#options = options;
  }

  /**
   * Writes down beside its commands: the sandbox, the signs of an attack, its checkpoints, and all lines about it in
   * the audit log, with the head of the log that proves them.
   */
  async write(id: SandboxId, name: string): Promise<void> {
    const { find, log, reportsOf, checkpointsOf } = this.#options;
    const managed = find(id);
    const checkpoints = await checkpointsOf(id);
    const dir = join(managed.sandbox.ownerDir, "evidence");
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const reports = reportsOf(id);
    const about = { writtenAtMs: Date.now(), sandbox: managed.info(), reports, checkpoints, auditHead: log.head };
    await writeDurably(join(dir, `${name}.json`), `${JSON.stringify(about, undefined, 2)}\n`);
    await using file = await open(join(dir, `${name}-audit.jsonl`), "w", 0o600);
    for await (const text of auditLines(log.dir, id)) await file.write(`${text}\n`);
  }

  /** Yields all of it and the commands of the sandbox, with their output, as a tar archive. */
  async archive(id: SandboxId, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    await this.write(id, "now");
    return pack(this.#options.find(id).sandbox.ownerDir, {
      signal,
      onSkipped: () => undefined,
      includes: (path) => /^(evidence|commands)(\/|$)/.test(path),
    });
  }
}
