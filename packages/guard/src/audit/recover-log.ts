import { createHash } from "node:crypto";
import { closeSync, openSync, readSync, renameSync, rmSync, truncateSync, statSync } from "node:fs";
import { join } from "node:path";
import type { AuditHead } from "@atoll/protocol";
import { auditFiles, currentFile, lastLineOf, rotatedFiles, rotatedName, stampOf } from "./audit-files.ts";
import { origin, parseChained } from "./chain.ts";
import { readHead } from "./head-record.ts";

export interface FoundLog {
  /** The line that the next one is chained to. */
  head: AuditHead;
  dropped: AuditHead | undefined;
  /** What has to be recorded; `message` is for the operator. */
  entries: { result: string; message?: string; details: Record<string, unknown> }[];
}

/**
 * Finds where the chain goes on after the process that wrote it ended, however that was. A torn last line is removed.
 * Everything that is not as it was left is recorded, and the chain goes on behind what `head.json` names, so that a gap
 * stays visible.
 */
export function recoverLog(dir: string, key: Buffer): FoundLog {
  const entries: FoundLog["entries"] = [];
  const report = (message: string, details: Record<string, unknown> = {}): void => {
    entries.push({ result: "repaired", message, details: { because: message, ...details } });
  };
  mendTornLine(dir, report);
  const last = lastChained(dir, key);
  const read = readHead(dir, key);
  if (last === undefined && read === "missing") return begin(dir, entries);
  if (last?.isWhole === false || last?.isAuthentic === false) {
    report(`line ${last.seq} was changed: it is not what the server wrote`, { seq: last.seq });
  }
  if (read === "missing" || read === "unreadable" || read.isAuthentic === false) {
    const what = typeof read === "string" ? read : "not the one that the server wrote";
    report(`head.json is ${what}; lines at the end of the log may be missing`);
    const { seq, hash } = last ?? origin;
    return { head: { seq, hash }, dropped: undefined, entries };
  }
  const { dropped, ...head } = read.record;
  if (dropped !== undefined) dropAgain(dir, dropped, key);
  if (last === undefined || last.seq < head.seq) {
    const from = (last?.seq ?? dropped?.seq ?? 0) + 1;
    report(`lines ${from} to ${head.seq} at the end of the log are missing`, { from, to: head.seq });
    return { head, dropped, entries };
  }
  if (last.seq === head.seq && last.hash !== head.hash) {
    report(`line ${last.seq} at the end of the log was replaced`, { seq: last.seq, hash: head.hash });
  }
  return { head: { seq: last.seq, hash: last.hash }, dropped, entries };
}

/** Starts a chain. Files of an earlier version become part of it by their digests. */
function begin(dir: string, entries: FoundLog["entries"]): FoundLog {
  const newest = rotatedFiles(dir).at(-1);
  const current = join(dir, currentFile);
  if (auditFiles(dir).includes(currentFile) && statSync(current).size > 0) {
    const stamp = Math.max(Date.now(), newest === undefined ? 0 : stampOf(newest) + 1);
    renameSync(current, join(dir, rotatedName(stamp)));
  }
  const earlier = rotatedFiles(dir).map((file) => ({ file, sha256: digestOf(join(dir, file)) }));
  entries.push({ result: "begun", details: earlier.length === 0 ? {} : { earlier } });
  return { head: origin, dropped: undefined, entries };
}

function mendTornLine(dir: string, report: (message: string, details: Record<string, unknown>) => void): void {
  const current = join(dir, currentFile);
  if (!auditFiles(dir).includes(currentFile)) return;
  const { size } = statSync(current);
  let last = lastLineOf(current);
  const { torn } = last;
  // What is torn may be longer than what is read at once, if another program wrote it.
  for (; last.torn !== ""; last = lastLineOf(current)) truncateSync(current, last.endsAt);
  const bytes = size - statSync(current).size;
  if (bytes === 0) return;
  const details = { file: currentFile, bytes, begins: torn.slice(0, 120) };
  report(`the last line was torn: ${bytes} bytes of it were removed`, details);
}

function lastChained(dir: string, key: Buffer) {
  for (const name of auditFiles(dir).toReversed()) {
    const { text } = lastLineOf(join(dir, name));
    const chained = text === undefined ? undefined : parseChained(text, key);
    if (chained !== undefined) return chained;
  }
  return undefined;
}

/** Removes the files that a rotation was about to remove. */
function dropAgain(dir: string, dropped: AuditHead, key: Buffer): void {
  for (const name of rotatedFiles(dir)) {
    const last = parseChained(lastLineOf(join(dir, name)).text ?? "", key);
    if (last !== undefined && last.seq <= dropped.seq) rmSync(join(dir, name));
  }
}

function digestOf(path: string): string {
  const hash = createHash("sha256");
  const file = openSync(path, "r");
  const piece = Buffer.alloc(256 * 1024);
  try {
    for (;;) {
      const bytes = readSync(file, piece);
      if (bytes === 0) return hash.digest("hex");
      hash.update(piece.subarray(0, bytes));
    }
  } finally {
    closeSync(file);
  }
}
