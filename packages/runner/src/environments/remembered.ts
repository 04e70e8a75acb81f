import { createHash, randomUUID } from "node:crypto";
import { mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { z } from "zod";

export interface Memory<Schema extends z.ZodType> {
  cacheDirectory: string;
  /** Everything that the answer follows from: another one is another question. */
  question: object;
  schema: Schema;
  /** Whether a stored answer can still be used. */
  isUsable?: (answer: z.infer<Schema>) => Promise<boolean>;
}

/**
 * Answers a question about this machine, such as what packages it has. Asking takes seconds and the answer seldom
 * changes, so it is kept in the cache. A file that cannot be read counts as absent.
 */
export async function remembered<Schema extends z.ZodType>(
  { cacheDirectory, question, schema, isUsable }: Memory<Schema>,
  ask: () => Promise<z.infer<Schema>>,
): Promise<z.infer<Schema>> {
  const name = createHash("sha256").update(JSON.stringify(question)).digest("hex").slice(0, 40);
  const directory = join(cacheDirectory, "answers");
  const path = join(directory, `${name}.json`);
  const stored = await readAnswer(path, schema);
  if (stored !== undefined && (isUsable === undefined || (await isUsable(stored)))) return stored;
  const answer = await ask();
  await mkdir(directory, { recursive: true });
  const unfinished = `${path}.${randomUUID()}`;
  await writeFile(unfinished, JSON.stringify(answer));
  await rename(unfinished, path);
  return answer;
}

async function readAnswer<Schema extends z.ZodType>(
  path: string,
  schema: Schema,
): Promise<z.infer<Schema> | undefined> {
  try {
    return schema.parse(JSON.parse(await readFile(path, "utf8")));
  } catch {
    return undefined;
  }
}

/** A text that changes when one of these files does. */
export async function stampOf(paths: readonly string[]): Promise<string> {
  const stamps = paths.map(async (path) => {
    const found = await stat(path).catch(() => undefined);
    return found === undefined ? "" : `${found.ino}:${found.mtimeMs}:${found.size}`;
  });
  return (await Promise.all(stamps)).join(" ");
}
