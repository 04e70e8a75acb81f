import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { Instance, Prediction } from "../models/task.ts";
import { readRows } from "./data-set.ts";
import { check, type Source } from "./source.ts";

/** `model_patch` is what the tools of SWE-bench write; others call it `patch`. */
const Row = z.looseObject({
  instance_id: z.string().min(1),
  model_name_or_path: z.string().nullish(),
  model_patch: z.string().nullish(),
  patch: z.string().nullish(),
});

/** The reference patches of a data set as predictions. */
export const goldPredictions = (instances: readonly Instance[]): Prediction[] =>
  instances.map(({ id, goldPatch }) => ({ instanceId: id, model: "gold", patch: goldPatch }));

/**
 * Reads predictions: a list, one per line, or a map by instance id. A `null` and an empty patch are predictions too.
 */
export async function readPredictions(path: string): Promise<Prediction[]> {
  const rows = await readRows(path);
  const predictions = rows.flatMap(({ source, at }) => readAll(source, at));
  const seen = new Set<string>();
  for (const { instanceId, model } of predictions) {
    const key = JSON.stringify([instanceId, model]);
    if (seen.has(key)) {
      const what = `${model} has two predictions for ${instanceId}`;
      throw new SandboxError("invalid_argument", `Cannot read ${path}: ${what}`, { suggestion: "Remove one of them." });
    }
    seen.add(key);
  }
  return predictions;
}

function readAll(source: Source, at: readonly PropertyKey[]): Prediction[] {
  const { value } = source;
  const isMap = at.length === 0 && typeof value === "object" && value !== null && !Array.isArray(value);
  if (!isMap || "instance_id" in value) return [read(source, at)];
  // In a map by instance id the row may leave the id out, or be the patch itself.
  return Object.entries(value).map(([id, row]) =>
    typeof row === "string" || row === null
      ? { instanceId: id, model: "unknown", patch: row }
      : read({ ...source, value: { ...value, [id]: { instance_id: id, ...row } } }, [id]),
  );
}

function read(source: Source, at: readonly PropertyKey[]): Prediction {
  const row = check(Row, source, at);
  return {
    instanceId: row.instance_id,
    model: row.model_name_or_path || "unknown",
    patch: row.model_patch ?? row.patch ?? null,
  };
}
