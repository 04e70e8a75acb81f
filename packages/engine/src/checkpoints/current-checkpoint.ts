import type { SandboxRecord } from "@atoll/protocol";

/** Returns no field at all for an absent base. */
export function optionalBase(base: number | undefined): { base?: number } {
  return base === undefined ? {} : { base };
}

/** Returns the checkpoint whose layers are below what a sandbox writes, or from which it will be resumed. */
export function currentCheckpoint(record: SandboxRecord): number | undefined {
  switch (record.state) {
    case "running":
    case "pausing":
    case "failed":
      return record.base;
    case "paused":
      return record.checkpoint;
    case "resuming":
      return "failure" in record ? record.base : record.checkpoint;
    case "creating":
    case "killing":
    case "killed":
    case "released":
      return undefined;
  }
}
