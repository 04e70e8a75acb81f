import { createHash } from "node:crypto";
import type { FileHandle } from "node:fs/promises";
import { SandboxError, type AuditHead, type AuditProblem, type AuditVerification } from "@atoll/protocol";
import { currentFile, linesOf, openAuditFiles, type FileLine } from "./audit-files.ts";
import { origin, parseChained, parseLine, type ChainedLine } from "./chain.ts";
import { headFile, readHead, type HeadRecord } from "./head-record.ts";

/** More problems than these are counted as one fact: the log is not to be trusted. */
const mostProblems = 100;

export interface VerifyOptions {
  /** The server's key. Without it, only changes by someone who did not write the chain again are found. */
  key?: Buffer | undefined;
  /** A head of earlier, which the log has to contain. */
  expected?: AuditHead | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Checks every line of the log in a directory: that it is what was written, that it follows the line before, and that
 * nothing is missing between the first line that is kept and the last one. The log may grow at the same time.
 */
export async function verifyLog(dir: string, options: VerifyOptions = {}): Promise<AuditVerification> {
  const head = readHead(dir, options.key);
  const files = await openAuditFiles(dir).catch((error: unknown) => {
    throw new SandboxError("not_found", `Cannot read an audit log in ${dir}`, { cause: error });
  });
  try {
    const check = new LogCheck(head, options);
    for (const { name, file } of files) await check.file(name, file);
    return check.finish(files.length, files.at(-1)?.name ?? currentFile);
  } finally {
    await Promise.all(files.map(({ file }) => file.close()));
  }
}

interface Gap {
  from: number;
  to: number;
  file: string;
  line: number;
}

class LogCheck {
  readonly #problems: AuditProblem[] = [];
  #hasMoreProblems = false;
  readonly #repairs: AuditVerification["repairs"] = [];
  readonly #options: VerifyOptions;
  readonly #record: HeadRecord | undefined;
  readonly #hasHeadProblem: boolean;
  /** Files without a chain, by name, with the digest of what they contain. */
  readonly #unchained = new Map<string, { sha256: string; line: number }>();
  #earlier = new Map<string, string>();
  #gaps: Gap[] = [];
  #first: ChainedLine | undefined;
  /** The line with the highest number so far, and the last one that was read. */
  #top: AuditHead = origin;
  #last: AuditHead = origin;
  #isOutOfOrder = false;
  #lines = 0;
  #unchainedLines = 0;
  #linesInFile = 0;
  #foundExpected = false;

  constructor(head: ReturnType<typeof readHead>, options: VerifyOptions) {
    this.#options = options;
    if (typeof head !== "string") this.#record = head.record;
    const wrong = typeof head === "string" ? head : head.isAuthentic === false ? "not the server's" : undefined;
    this.#hasHeadProblem = wrong !== undefined;
    if (wrong !== undefined) this.#headProblem(wrong);
  }

  #headProblem(wrong: string): void {
    const message = `The record of the last line is ${wrong}: lines at the end of the log may be missing.`;
    this.#report({ kind: "head", file: headFile, message });
  }

  async file(name: string, file: FileHandle): Promise<void> {
    const digest = createHash("sha256");
    let isChained = false;
    this.#linesInFile = 0;
    this.#isOutOfOrder = false;
    for await (const line of linesOf(file)) {
      this.#options.signal?.throwIfAborted();
      this.#lines += 1;
      this.#linesInFile = line.number;
      if (!line.isEnded) {
        const message = "The line was not written to its end.";
        this.#report({ kind: "torn", file: name, line: line.number, message });
        continue;
      }
      const chained = parseChained(line.text, this.#options.key);
      isChained ||= chained !== undefined;
      if (!isChained) digest.update(`${line.text}\n`);
      if (chained !== undefined) this.#chained(name, line, chained);
      else this.#unknown(name, line, isChained || this.#first !== undefined);
    }
    if (!isChained && this.#first === undefined) {
      this.#unchained.set(name, { sha256: digest.digest("hex"), line: 1 });
    }
  }

  #unknown(file: string, { number: line, text }: FileLine, isInChain: boolean): void {
    if (isInChain) return this.#report({ kind: "changed", file, line, message: "This is not a line of the chain." });
    this.#unchainedLines += 1;
    if (parseLine(text) === undefined) {
      this.#report({ kind: "changed", file, line, message: "This is not a line of an audit log." });
    }
  }

  #chained(file: string, { number: line }: FileLine, chained: ChainedLine): void {
    const { seq, hash, prev } = chained;
    if (this.#first === undefined) this.#begin(chained);
    if (!chained.isWhole) {
      this.#report({ kind: "changed", file, line, message: `Line ${seq} is not what was written: its hash differs.` });
    } else if (chained.isAuthentic === false) {
      this.#report({ kind: "changed", file, line, message: `Line ${seq} was not written by this server.` });
    }
    const before = this.#before(seq);
    if (before === undefined) this.#outOfPlace(file, line, seq);
    else {
      this.#isOutOfOrder &&= seq <= this.#top.seq;
      if (before.hash !== prev) {
        const message = `Line ${seq} does not follow the line before it: one of both was replaced.`;
        this.#report({ kind: "changed", file, line, message });
      }
    }
    this.#last = { seq, hash };
    if (seq > this.#top.seq) this.#top = { seq, hash };
    this.#compare(file, line, { seq, hash });
    if (chained.line.who === "server" && chained.line.what === "audit") this.#note(seq, chained);
  }

  #begin(first: ChainedLine): void {
    this.#first = first;
    const dropped = this.#record?.dropped;
    // A file that was about to be dropped may still be there; then its own lines are the beginning.
    const before = dropped !== undefined && first.seq > dropped.seq ? dropped : undefined;
    this.#top =
      before ?? (first.seq === 1 || dropped === undefined ? origin : { seq: first.seq - 1, hash: first.prev });
    this.#last = this.#top;
  }

  #before(seq: number): AuditHead | undefined {
    if (seq === this.#top.seq + 1) return this.#top;
    return seq === this.#last.seq + 1 && this.#isOutOfOrder ? this.#last : undefined;
  }

  #outOfPlace(file: string, line: number, seq: number): void {
    if (seq > this.#top.seq) {
      this.#gaps.push({ from: this.#top.seq + 1, to: seq - 1, file, line });
      return;
    }
    this.#isOutOfOrder = true;
    const isFromGap = this.#gaps.some(({ from, to }) => seq >= from && seq <= to);
    if (!isFromGap) {
      this.#report({ kind: "repeated", file, line, message: `Line ${seq} was there before.` });
      return;
    }
    const message = `Line ${seq} and those that follow belong further up, before line ${this.#top.seq}.`;
    this.#report({ kind: "reordered", file, line, message });
  }

  #compare(file: string, line: number, found: AuditHead): void {
    this.#gaps = this.#gaps.flatMap((gap) => withoutLine(gap, found.seq));
    const { expected } = this.#options;
    if (expected?.seq === found.seq) {
      this.#foundExpected = true;
      if (expected.hash !== found.hash) {
        const message = `Line ${found.seq} is not the one of the given head: the log was rewritten.`;
        this.#report({ kind: "head", file, line, message });
      }
    }
    if (this.#hasHeadProblem) return;
    const record = this.#record;
    for (const known of [record, record?.dropped]) {
      if (known?.seq !== found.seq || known.hash === found.hash) continue;
      const message = `Line ${found.seq} is not the one that ${headFile} names: the log was rewritten.`;
      this.#report({ kind: "changed", file, line, message });
    }
  }

  /** Collects what the server recorded about the log itself. */
  #note(seq: number, { line, isWhole, isAuthentic }: ChainedLine): void {
    if (!isWhole || isAuthentic === false) return;
    const { because, earlier } = line.details ?? {};
    if (line.result === "repaired") this.#repairs.push({ seq, message: String(because) });
    if (line.result !== "begun" || !Array.isArray(earlier)) return;
    this.#earlier = new Map(earlier.map(({ file, sha256: digest }) => [String(file), String(digest)]));
  }

  finish(files: number, lastFile: string): AuditVerification {
    for (const { from, to, file, line } of this.#gaps) {
      const lines = from === to ? `Line ${from} is` : `Lines ${from} to ${to} are`;
      const where = line === 1 ? ": a file before this one is gone or was replaced." : " before this one.";
      this.#report({ kind: "missing", file, line, message: `${lines} missing${where}` });
    }
    this.#checkUnchained();
    this.#checkEnd(lastFile);
    this.#checkExpected();
    return {
      isIntact: this.#problems.length === 0,
      isAuthenticated: this.#options.key !== undefined,
      head: this.#top,
      firstSeq: this.#first?.seq ?? 1,
      files,
      lines: this.#lines,
      unchainedLines: this.#unchainedLines,
      problems: this.#problems,
      hasMoreProblems: this.#hasMoreProblems,
      repairs: this.#repairs,
    };
  }

  #checkUnchained(): void {
    // The list of earlier files is dropped together with the first lines of the chain.
    if (this.#first === undefined) return;
    for (const [file, { sha256: digest }] of this.#unchained) {
      const known = this.#earlier.get(file);
      if (known === digest) continue;
      const kind = known === undefined ? "unknown_file" : "changed";
      const message =
        known === undefined
          ? "The log does not know this file: it was added."
          : "This file of an earlier version is not what it was when the chain began.";
      this.#report({ kind, file, message });
    }
    for (const file of this.#earlier.keys()) {
      if (this.#unchained.has(file) || this.#record?.dropped !== undefined) continue;
      this.#report({ kind: "missing", file, message: "This file of an earlier version is missing." });
    }
  }

  #checkEnd(file: string): void {
    const record = this.#record;
    if (record === undefined || this.#hasHeadProblem || this.#top.seq >= record.seq) return;
    const line = this.#linesInFile + 1;
    const message = `Lines ${this.#top.seq + 1} to ${record.seq} are missing at the end of the log.`;
    this.#report({ kind: "missing", file, line, message });
  }

  #checkExpected(): void {
    const { expected } = this.#options;
    if (expected === undefined || this.#foundExpected || expected.seq === 0) return;
    const dropped = this.#record?.dropped;
    if (dropped !== undefined && dropped.seq === expected.seq && dropped.hash === expected.hash) return;
    const isTooOld = this.#first !== undefined && expected.seq < this.#first.seq;
    const message = isTooOld
      ? `Line ${expected.seq} of the given head was dropped: the log begins with line ${this.#first?.seq}.`
      : `Line ${expected.seq} of the given head is not in the log: it was cut or rewritten.`;
    this.#report({ kind: "head", message });
  }

  #report(problem: AuditProblem): void {
    if (this.#problems.length < mostProblems) this.#problems.push(problem);
    else this.#hasMoreProblems = true;
  }
}

function withoutLine(gap: Gap, seq: number): Gap[] {
  if (seq < gap.from || seq > gap.to) return [gap];
  return [
    { ...gap, to: seq - 1 },
    { ...gap, from: seq + 1 },
  ].filter(({ from, to }) => from <= to);
}
