import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { Instance } from "../models/task.ts";
import { check, parseJsonSource, parseYamlSource, readTextFile, type Source } from "./source.ts";
import { readRow } from "./swe-bench.ts";
import { readSource } from "./task-file.ts";
import { isTaskFolder, readTaskFolder } from "./terminal-task.ts";

/** Every row of a JSONL file, or of a file that has a list of rows or a single one. */
export async function readRows(path: string): Promise<{ source: Source; at: PropertyKey[] }[]> {
  if (/\.(?:jsonl|ndjson)$/i.test(path)) {
    const lines = (await readTextFile(path)).split("\n");
    return lines.flatMap((line, index) =>
      line.trim() === "" ? [] : [{ source: parseJsonSource(path, line, index + 1), at: [] }],
    );
  }
  if (/\.parquet$/i.test(path)) {
    throw new SandboxError("unsupported", `Cannot read ${path}: Parquet is not read`, {
      suggestion: "Convert it to JSONL: pandas.read_parquet(path).to_json('out.jsonl', orient='records', lines=True).",
    });
  }
  const source = await readSource(path);
  if (Array.isArray(source.value)) return source.value.map((_, index) => ({ source, at: [index] }));
  return [{ source, at: [] }];
}

/**
 * Reads the instances of a data set: a JSONL or JSON file, a folder of such files, a folder of SWE-bench 5 with
 * `tasks/`, or one or many folders of Harbor or terminal-bench.
 */
export async function readDataSet(path: string): Promise<Instance[]> {
  const instances = await readAny(path);
  const seen = new Set<string>();
  for (const { id } of instances) {
    if (seen.has(id)) {
      throw new SandboxError("invalid_argument", `Cannot read ${path}: the instance ${id} is there twice`, {
        suggestion: "Remove one of the two.",
      });
    }
    seen.add(id);
  }
  if (instances.length === 0) {
    throw new SandboxError("invalid_argument", `Cannot read ${path}: there is no instance in it`, {
      suggestion: "Give a .jsonl or .json file, or a folder with tasks/.",
    });
  }
  return instances;
}

/** Chooses instances by id, in this order. An id that is not there is an error: a slip must not shorten a run. */
export function chooseInstances(instances: readonly Instance[], ids: readonly string[]): Instance[] {
  const byId = new Map(instances.map((instance) => [instance.id, instance]));
  return ids.map((id) => {
    const found = byId.get(id);
    if (found !== undefined) return found;
    const near = [...byId.keys()].find((other) => other.endsWith(id) || other.includes(id));
    const hint = near === undefined ? `It has ${byId.size} others, such as ${[...byId.keys()][0]}.` : `Is it ${near}?`;
    throw new SandboxError("not_found", `Cannot run ${id}: the data set has no such instance`, { suggestion: hint });
  });
}

async function readAny(path: string): Promise<Instance[]> {
  const stats = await stat(path).catch(() => undefined);
  if (stats?.isDirectory() !== true) {
    return (await readRows(path)).map(({ source, at }) => readRow(source, at));
  }
  if (await isTaskFolder(path)) return [await readTaskFolder(path)];
  const names = (await readdir(path)).toSorted();
  if (names.includes("tasks")) return readFolders(join(path, "tasks"));
  const files = names.filter((name) => /\.(?:jsonl|ndjson|json)$/i.test(name));
  if (files.length === 0) return readFolders(path);
  return (await Promise.all(files.map((name) => readAny(join(path, name))))).flat();
}

async function readFolders(root: string): Promise<Instance[]> {
  const instances: Instance[] = [];
  for (const name of (await readdir(root)).toSorted()) {
    const folder = join(root, name);
    if (await isSweBenchFolder(folder)) instances.push(await readSweBenchFolder(folder));
    else if (await isTaskFolder(folder)) instances.push(await readTaskFolder(folder));
  }
  return instances;
}

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (stats) => stats.isFile(),
    () => false,
  );

const isSweBenchFolder = async (folder: string): Promise<boolean> =>
  (await isFile(join(folder, "task.yaml"))) && (await isFile(join(folder, "tests.json")));

const Columns = z.record(z.string(), z.unknown());

/** The columns of SWE-bench 5 that are files of their own. */
const columns = {
  patch: "gold.patch",
  test_patch: "test.patch",
  eval_script: "eval.sh",
  problem_statement: "problem_statement.md",
} as const;

/** Reads `tasks/<id>` of SWE-bench 5. Patches are read as they are, so that CRLF survives. */
async function readSweBenchFolder(folder: string): Promise<Instance> {
  const file = join(folder, "task.yaml");
  const metadata = parseYamlSource(file, await readTextFile(file), true);
  const tests = join(folder, "tests.json");
  const lists = check(Columns, parseJsonSource(tests, await readTextFile(tests)));
  const given = Object.entries(check(Columns, metadata)).filter(([, value]) => value !== "null" && value !== "");
  const row: Record<string, unknown> = { ...Object.fromEntries(given), ...lists };
  for (const [column, name] of Object.entries(columns)) {
    if (await isFile(join(folder, name))) row[column] = await readTextFile(join(folder, name));
  }
  return readRow({ name: file, value: row, locate: (at) => metadata.locate(at) }, []);
}
