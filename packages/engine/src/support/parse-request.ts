import { SandboxError } from "@atoll/protocol";
import type { z } from "zod";

/** Parses the caller's input, once, at the edge. `asked` completes "Cannot …". */
export function parseRequest<T extends z.ZodType>(schema: T, value: z.input<T>, asked: string): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.map(({ path, message }) => ({ field: path.join("."), message }));
  const first = issues.map(({ field, message }) => (field === "" ? message : `${field}: ${message}`)).join("; ");
  throw new SandboxError("invalid_argument", `Cannot ${asked}: ${first}`, { details: { issues } });
}
