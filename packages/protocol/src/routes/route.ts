import type { z } from "zod";
import type { KeyVerb } from "../auth.ts";

/** One endpoint. Handlers, SDK calls and the OpenAPI document are derived from it. */
export interface Route {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** `:name` is a parameter. */
  path: string;
  summary: string;
  /**
   * The verb that a key needs; a sandbox's own token has `read`, `commands`, `files` and `ports` on that sandbox.
   * `public`: nobody is asked. `server`: no key, but the proof that another server with the same metadata store asks.
   */
  verb: KeyVerb | "public" | "server";
  params?: z.ZodObject;
  query?: z.ZodObject;
  /** A schema for JSON; `bytes` is a stream of any length. */
  body?: z.ZodType | "bytes" | "tar";
  /** A schema for JSON; the others are streams. */
  reply: z.ZodType | "bytes" | "tar" | "ndjson" | "sse" | "text" | "empty";
  status?: 200 | 201 | 202 | 204;
  /**
   * For those that would otherwise bring a paused sandbox back first, because they are about commands, files or ports.
   */
  leavesAsleep?: true;
  /** Honours `Idempotency-Key`: the same key and body give the same answer and happen once. */
  isIdempotent?: true;
}

/**
 * Whether a paused sandbox is brought back before the request: what is about its commands, files or ports wants it
 * running.
 */
export function wakesSandbox({ method, verb, leavesAsleep }: Route): boolean {
  if (leavesAsleep === true) return false;
  return verb === "files" || verb === "ports" || (verb === "commands" && method !== "GET");
}
