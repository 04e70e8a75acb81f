import type { AuditLine, AuditPage, AuditQuery } from "@atoll/protocol";
import { linesOf, openAuditFiles, stampOf } from "./audit-files.ts";
import { parseLine } from "./chain.ts";

/** Returns the newest lines that match, in the order in which they were written. Memory is bounded by `limit`. */
export async function queryLog(dir: string, query: AuditQuery, signal?: AbortSignal): Promise<AuditPage> {
  const files = await openAuditFiles(dir);
  const sinceMs = query.since === undefined ? Number.NEGATIVE_INFINITY : Date.parse(query.since);
  const wanted = query.limit + 1;
  let found: AuditLine[] = [];
  try {
    for (const { name, file } of files.toReversed()) {
      if (found.length >= wanted || stampOf(name) < sinceMs) break;
      const inFile: AuditLine[] = [];
      for await (const { text } of linesOf(file)) {
        signal?.throwIfAborted();
        const line = parseLine(text);
        if (line === undefined || !matches(line, query)) continue;
        inFile.push(line);
        if (inFile.length >= 2 * wanted) inFile.splice(0, inFile.length - wanted);
      }
      found = [...inFile.slice(-(wanted - found.length)), ...found];
    }
  } finally {
    await Promise.all(files.map(({ file }) => file.close()));
  }
  return { lines: found.slice(-query.limit), hasMore: found.length > query.limit };
}

/** Yields all lines about one sandbox as they are in the files, oldest first. */
export async function* auditLines(dir: string, sandboxId: string): AsyncGenerator<string, void, undefined> {
  const files = await openAuditFiles(dir);
  try {
    for (const { file } of files) {
      for await (const { text } of linesOf(file)) {
        if (text.includes(sandboxId) && parseLine(text)?.sandboxId === sandboxId) yield text;
      }
    }
  } finally {
    await Promise.all(files.map(({ file }) => file.close()));
  }
}

function matches(line: AuditLine, { since, until, before, who, what, sandboxId, result }: AuditQuery): boolean {
  const atMs = Date.parse(line.at);
  if (since !== undefined && !(atMs >= Date.parse(since))) return false;
  if (until !== undefined && !(atMs < Date.parse(until))) return false;
  if (before !== undefined && !((line.seq ?? 0) < before)) return false;
  if (who !== undefined && line.who !== who) return false;
  if (what !== undefined && line.what !== what) return false;
  if (sandboxId !== undefined && line.sandboxId !== sandboxId) return false;
  return result === undefined || line.result === result;
}
