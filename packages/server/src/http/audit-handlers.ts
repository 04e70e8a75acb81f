import { queryLog, verifyLog, type AuditLog } from "@atoll/guard";
import { AuditQuery, type AuditLine, type AuditMessage } from "@atoll/protocol";
import { Bell } from "../support/bell.ts";
import { LineStream, type Handlers } from "./handlers.ts";
import type { Parts } from "./parts.ts";

/** How many lines wait for a slow follower before some are skipped. */
const mostWaiting = 1_000;

export function auditHandlers({ manager }: Parts) {
  const audit = manager.audit.log;
  return {
    queryAudit: ({ query, signal }) => queryLog(audit.dir, query, signal),
    tailAudit: ({ query: { lines, follow }, signal }) =>
      new LineStream<AuditMessage>(tail(audit, { lines, follow, signal }), {
        heartbeat: () => ({ type: "heartbeat" }),
        shutdown: () => ({ type: "shutdown" }),
        refused: (error) => ({ type: "refused", error }),
      }),
    getAuditHead: () => audit.head,
    verifyAudit: ({ query, signal }) => verifyLog(audit.dir, { key: audit.key, expected: query.head, signal }),
  } satisfies Partial<Handlers>;
}

/** Yields the last lines, then each new one: no line twice, and none left out without saying so. */
async function* tail(
  audit: AuditLog,
  { lines, follow, signal }: { lines: number; follow: boolean; signal: AbortSignal },
): AsyncGenerator<AuditMessage, void, undefined> {
  const waiting: AuditLine[] = [];
  const bell = new Bell();
  let skipped = 0;
  const unlisten = audit.listen((line) => {
    if (waiting.length < mostWaiting) waiting.push(line);
    else skipped += 1;
    bell.ring();
  });
  try {
    const shownUpTo = audit.head.seq;
    const query = AuditQuery.parse({ before: shownUpTo + 1, limit: Math.max(1, lines) });
    const page = await queryLog(audit.dir, query, signal);
    if (lines > 0) for (const line of page.lines) yield { type: "line", line };
    if (!follow) return;
    while (!signal.aborted) {
      const line = waiting.shift();
      if (line !== undefined) yield { type: "line", line };
      else if (skipped > 0) {
        yield { type: "skipped", lines: skipped };
        skipped = 0;
      } else await bell.wait(signal);
    }
  } finally {
    unlisten();
  }
}
