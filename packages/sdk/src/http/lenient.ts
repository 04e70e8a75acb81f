import { SandboxError } from "@atoll/protocol";
import type { z } from "zod";

/**
 * Reads what a server sent. The schema is strict; a newer server may send more than this version knows, so unknown
 * fields are left out. Anything else that does not fit is an error.
 */
export function readReply<Schema extends z.ZodType>(schema: Schema, value: unknown, from: string): z.output<Schema> {
  const first = schema.safeParse(value);
  if (first.success) return first.data;
  let reply = structuredClone(value);
  let { error } = first;
  // Every round removes fields, so this ends.
  for (;;) {
    const unknown = error.issues.filter((issue) => issue.code === "unrecognized_keys");
    if (unknown.length === 0) break;
    for (const { path, keys } of unknown) reply = without(reply, path, keys);
    const next = schema.safeParse(reply);
    if (next.success) return next.data;
    ({ error } = next);
  }
  throw new SandboxError("internal", `Cannot understand the answer of ${from}: ${summary(error)}`, {
    suggestion: "Bring server and SDK to the same version",
    details: { issues: error.issues.map(({ path, message }) => ({ path: path.map(String).join("."), message })) },
  });
}

function without(root: unknown, path: PropertyKey[], keys: string[]): unknown {
  let target: unknown = root;
  for (const step of path) target = (target as Record<PropertyKey, unknown>)[step];
  for (const key of keys) delete (target as Record<string, unknown>)[key];
  return root;
}

function summary(error: z.ZodError): string {
  const [issue] = error.issues;
  return issue === undefined ? "unknown" : `${issue.path.map(String).join(".") || "body"}: ${issue.message}`;
}
