import type { z } from "zod";
import type { KeyVerb } from "../auth.ts";

/** One endpoint. Handlers, SDK calls and the OpenAPI document are derived from it. */
export interface Route {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path, with `:name` for a parameter. */
  path: string;
  summary: string;
  /**
   * The verb that a key needs; a sandbox's own token has `read`, `commands`, `files` and `ports` on that sandbox.
   * `public` routes need no key. `server` routes need the proof that another server with the same metadata store asks.
   */
  verb: KeyVerb | "public" | "server";
  params?: z.ZodObject;
  query?: z.ZodObject;
  /** A schema for JSON; `bytes` is a stream of any length. */
  body?: z.ZodType | "bytes" | "tar";
  /** A schema for JSON; the others are streams. */
  reply: z.ZodType | "bytes" | "tar" | "ndjson" | "sse" | "text" | "empty";
  status?: 200 | 201 | 202 | 204;
  /** Set on routes that leave a paused sandbox paused, although they are about commands, files or ports. */
  leavesAsleep?: true;
  /**
   * Whether the route accepts `Idempotency-Key`: requests with the same key and body happen once and get the same
   * answer.
   */
  isIdempotent?: true;
}

/**
 * Returns whether a paused sandbox is resumed before the request: routes about commands, files and ports need it
 * running.
 */
export function wakesSandbox({ method, verb, leavesAsleep }: Route): boolean {
  if (leavesAsleep === true) return false;
  return verb === "files" || verb === "ports" || (verb === "commands" && method !== "GET");
}
