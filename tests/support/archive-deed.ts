import type { ImportedRecord, SandboxId } from "@atoll/protocol";

/** What an `archive-worker.ts` does. */
export type ArchiveDeed =
  | { do: "publish"; id: SandboxId; n: number }
  | { do: "fetch"; record: ImportedRecord; n: number }
  /** As if so much time had passed since the last look. */
  | { do: "collect"; keepLast: number; nowMs: number; graceMs: number };
