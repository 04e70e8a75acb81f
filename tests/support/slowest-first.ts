import { basename } from "node:path";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/**
 * The files that take longest, in order. Vitest starts them first, because the file that starts last decides when the
 * run ends, and a fresh clone has no durations of an earlier run. A slow file that is missing here costs only seconds.
 */
const slow = [
  "handover-crashes",
  "handover",
  "pause-failures",
  "pause-crash",
  "server-pause",
  "server-death",
  "limits",
  "handover-death",
  "fork-crash",
  "retention",
  "handover-partition",
  "handover-failed",
  "transfer-crash",
  "manager-death",
  "server-restart",
  "cli-terminal",
  "lease-processes",
  "sdk-examples",
];

function rank({ moduleId }: TestSpecification): number {
  const index = slow.indexOf(basename(moduleId, ".test.ts"));
  return index === -1 ? slow.length : index;
}

export class SlowestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // This `sort` is the sequencer's, not that of an array.
    // oxlint-disable-next-line unicorn/no-array-sort
    const sorted = await super.sort(files);
    const group = ({ project }: TestSpecification): number => project.config.sequence.groupOrder;
    return sorted.toSorted((a, b) => group(a) - group(b) || rank(a) - rank(b));
  }
}
