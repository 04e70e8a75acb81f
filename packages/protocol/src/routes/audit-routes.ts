import { z } from "zod";
import { AuditHead, AuditHeadText, AuditPage, AuditQuery, AuditVerification } from "../audit.ts";
import type { Route } from "./route.ts";

export const auditRoutes = {
  queryAudit: {
    method: "GET",
    path: "/audit",
    summary: "Find lines of the audit log: the newest that match, oldest first",
    verb: "admin",
    query: AuditQuery,
    reply: AuditPage,
  },
  tailAudit: {
    method: "GET",
    path: "/audit/tail",
    summary: "Show the last lines of the audit log and follow it",
    verb: "admin",
    query: z.strictObject({
      lines: z.coerce.number().int().min(0).max(1_000).default(10),
      follow: z
        .enum(["true", "false"])
        .default("true")
        .transform((value) => value === "true"),
    }),
    reply: "ndjson",
  },
  getAuditHead: {
    method: "GET",
    path: "/audit/head",
    summary: "Get the number and the hash of the last line, to keep elsewhere",
    verb: "admin",
    reply: AuditHead,
  },
  verifyAudit: {
    method: "GET",
    path: "/audit/verify",
    summary: "Check every line of the audit log; `head` is an earlier `<seq>:<hash>` that it must still contain",
    verb: "admin",
    query: z.strictObject({ head: AuditHeadText.optional() }),
    reply: AuditVerification,
  },
} as const satisfies Record<string, Route>;
