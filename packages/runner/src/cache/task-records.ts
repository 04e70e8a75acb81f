import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/host";
import { z } from "zod";
import type { FixPlan } from "../compat/compat-fix.ts";
import { AppliedFix, AttemptResult } from "../models/report.ts";

/** What was learned about a task, so that later runs start with it. */
const TaskRecord = z.object({
  schemaVersion: z.literal(1),
  /** The fixes with which the baseline holds, in the order in which they were found. */
  fixes: z.array(z.object({ applied: AppliedFix, plan: z.custom<FixPlan>((value) => typeof value === "object") })),
  /** The paths that the test patch changes. */
  testPaths: z.array(z.object({ status: z.string(), path: z.string() })).optional(),
  /** Test runs of the state before a prediction, and of what they are the result. */
  baseline: z.object({ key: z.string(), attempts: z.array(AttemptResult) }).optional(),
});
export type TaskRecord = z.infer<typeof TaskRecord>;

export const emptyRecord: TaskRecord = { schemaVersion: 1, fixes: [] };

/** A record file per task, in the cache directory. One that cannot be read counts as absent: it is a cache. */
export class TaskRecords {
  readonly #directory: string;

  constructor(cacheDirectory: string) {
    this.#directory = join(cacheDirectory, "tasks");
  }

  async read(key: string): Promise<TaskRecord> {
    try {
      return TaskRecord.parse(JSON.parse(await readFile(this.#path(key), "utf8")));
    } catch {
      return emptyRecord;
    }
  }

  async write(key: string, record: TaskRecord): Promise<void> {
    await mkdir(this.#directory, { recursive: true });
    await writeDurably(this.#path(key), JSON.stringify(record));
  }

  #path(key: string): string {
    return join(this.#directory, `${key}.json`);
  }
}
