import type { SandboxRecord } from "@atoll/protocol";

/** An absent base is no field at all. */
export function based(base: number | undefined): { base?: number } {
  return base === undefined ? {} : { base };
}

/** The checkpoint whose layers lie below what a sandbox writes, or that it goes on from. */
export function standsOn(record: SandboxRecord): number | undefined {
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
