import { SandboxError, type Route } from "@atoll/protocol";
import { z } from "zod";

/** Parses one part of a request. The message names the first problem, and `details` has all of them. */
export function parsePart<T extends z.ZodType>(schema: T, value: unknown, asked: string): z.output<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.flatMap(issuesOf);
  const [first = { field: "", message: "it is malformed" }] = issues;
  throw new SandboxError("invalid_argument", `Cannot ${asked}: ${sentence(first)}`, {
    details: { field: first.field, issues },
  });
}

const nothing = z.strictObject({});

/**
 * Validates a part of a request. Where a route takes no part, sending one is an error, because it is a mistake of the
 * client. Public routes ignore it, because probes add what they like.
 */
export function readPart(route: Route, schema: z.ZodType | undefined, value: unknown, name: string): unknown {
  if (schema !== undefined) return parsePart(schema, value, asked(name));
  if (route.verb !== "public") parsePart(nothing, value, asked(name));
  return undefined;
}

interface FieldIssue {
  field: string;
  message: string;
}

function issuesOf(issue: z.core.$ZodIssue): FieldIssue[] {
  const path = issue.path.map(String);
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => ({ field: [...path, key].join("."), message: "there is no such field" }));
  }
  return [{ field: path.join("."), message: issue.message }];
}

function sentence({ field, message }: FieldIssue): string {
  return field === "" ? message : `${field}: ${message}`;
}

/** Turns `createSandbox` into `create sandbox`, which completes "Cannot …". */
export function asked(routeName: string): string {
  return routeName.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}
