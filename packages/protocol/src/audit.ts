import { z } from "zod";
import { SandboxId } from "./ids.ts";

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "64 hexadecimal digits");

/** The last line of the chain. A client that keeps it can check later whether the log before it is still the same. */
export const AuditHead = z.strictObject({ seq: z.int().min(0), hash: Sha256 });
export type AuditHead = z.infer<typeof AuditHead>;

/** One line of the audit log. A line of an earlier version has no `seq`, `prev` and `hash`. */
export const AuditLine = z.looseObject({
  seq: z.int().min(1).optional(),
  at: z.string(),
  who: z.string(),
  what: z.string(),
  sandboxId: z.string().optional(),
  result: z.string(),
  bytesIn: z.number().optional(),
  bytesOut: z.number().optional(),
  durationMs: z.number().optional(),
  requestId: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
  prev: Sha256.optional(),
  hash: Sha256.optional(),
});
export type AuditLine = z.infer<typeof AuditLine>;

const auditProblems = ["changed", "missing", "reordered", "repeated", "torn", "head", "unknown_file"] as const;

/** One place where the log is not what was written. */
export const AuditProblem = z.strictObject({
  kind: z.enum(auditProblems),
  /** The file of the log, such as `audit.jsonl`; absent where the problem is about the log as a whole. */
  file: z.string().optional(),
  line: z.int().min(1).optional(),
  message: z.string(),
});
export type AuditProblem = z.infer<typeof AuditProblem>;

export const AuditVerification = z.strictObject({
  isIntact: z.boolean(),
  /** Whether the server's key was there, so that lines and head are known to be written by it. */
  isAuthenticated: z.boolean(),
  /** The last line of the chain that was found. */
  head: AuditHead,
  /** The first line that is kept; those before were dropped by rotation. */
  firstSeq: z.int().min(1),
  files: z.int().min(0),
  lines: z.int().min(0),
  /** Lines of earlier versions, which were written without a chain. */
  unchainedLines: z.int().min(0),
  problems: z.array(AuditProblem),
  /** Whether there are more problems than are listed. */
  hasMoreProblems: z.boolean(),
  /** What the server itself found and recorded when it opened the log, such as a torn last line. */
  repairs: z.array(z.strictObject({ seq: z.int().min(1), message: z.string() })),
});
export type AuditVerification = z.infer<typeof AuditVerification>;

/** The text form of a head, for people and scripts: `<seq>:<hash>`. */
export const AuditHeadText = z
  .string()
  .regex(/^\d{1,15}:[0-9a-f]{64}$/, "a head is <seq>:<hash>, as `atoll audit head` prints it")
  .transform((text): AuditHead => {
    const [seq = "", hash = ""] = text.split(":");
    return { seq: Number(seq), hash };
  });

const limit = z.coerce.number().int().min(1).max(1_000);

/** The newest lines that match are returned, in the order in which they were written. */
export const AuditQuery = z.strictObject({
  who: z.string().max(200).optional(),
  what: z.string().max(200).optional(),
  sandboxId: SandboxId.optional(),
  result: z.string().max(200).optional(),
  /** ISO times; a line matches from `since`, inclusive, up to `until`, exclusive. */
  since: z.iso.datetime({ offset: true }).optional(),
  until: z.iso.datetime({ offset: true }).optional(),
  /** Only lines before this one. */
  before: z.coerce.number().int().min(1).optional(),
  limit: limit.default(100),
});
export type AuditQuery = z.infer<typeof AuditQuery>;
export type AuditQueryInput = z.input<typeof AuditQuery>;

/** A page of lines. `hasMore` says that older ones match, too. */
export const AuditPage = z.strictObject({ lines: z.array(AuditLine), hasMore: z.boolean() });
export type AuditPage = z.infer<typeof AuditPage>;

/** A message of the stream of new lines. */
export const AuditMessage = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("line"), line: AuditLine }),
  /** The client did not read fast enough: so many lines are in the log and not in this stream. */
  z.strictObject({ type: z.literal("skipped"), lines: z.int().min(1) }),
  z.strictObject({ type: z.literal("heartbeat") }),
  z.strictObject({ type: z.literal("shutdown") }),
  z.looseObject({ type: z.literal("refused") }),
]);
export type AuditMessage = z.infer<typeof AuditMessage>;
