import { z } from "zod";
import { WireError } from "./http.ts";

const path = z
  .string()
  .min(1)
  .max(4096)
  .refine((value) => !value.includes("\0"), "must not contain NUL");
const user = z.string().min(1).max(63).default("user");
const flag = z
  .enum(["true", "false"])
  .default("false")
  .transform((value) => value === "true");

/** A relative path starts at the user's home. */
export const FileQuery = z.strictObject({ path, user });
export const ReadQuery = z.strictObject({
  path,
  user,
  offset: z.coerce.number().int().min(0).optional(),
  length: z.coerce.number().int().min(0).optional(),
});
export const WriteQuery = z.strictObject({
  path,
  user,
  mode: z
    .string()
    .regex(/^[0-7]{3,4}$/, "an octal mode such as 644")
    .default("644"),
  how: z.enum(["replace", "append", "create"]).default("replace"),
});
export const ListQuery = z.strictObject({ path, user, depth: z.coerce.number().int().min(1).max(64).default(1) });
export const RemoveQuery = z.strictObject({ path, user, recursive: flag });
export const WatchQuery = z.strictObject({
  path,
  user,
  recursive: flag,
  cursor: z.coerce.number().int().min(0).optional(),
  watch: z.string().max(64).optional(),
});
export const MakeDirectory = z.strictObject({
  path,
  user,
  mode: z
    .string()
    .regex(/^[0-7]{3,4}$/)
    .default("755"),
  parents: z.boolean().default(true),
});
export const RenameFile = z.strictObject({ from: path, to: path, user, replace: z.boolean().default(true) });

export const FileInfo = z.strictObject({
  name: z.string(),
  type: z.enum(["file", "directory", "link", "fifo", "socket", "character device", "block device"]),
  mode: z.int(),
  uid: z.int(),
  gid: z.int(),
  sizeBytes: z.int(),
  modifiedAtMs: z.number(),
  target: z.string().optional(),
});
export type FileInfo = z.infer<typeof FileInfo>;
export const FileList = z.strictObject({ files: z.array(FileInfo) });

export const WatchMessage = z.strictObject({
  cursor: z.int(),
  kind: z.enum(["created", "written", "attributes", "removed", "moved_away", "moved_here", "lost", "watching", "gone"]),
  isDirectory: z.boolean(),
  cookie: z.int(),
  path: z.string(),
});
export type WatchMessage = z.infer<typeof WatchMessage>;

/** A line of a streamed watch: a change, with the id of the watch to continue from, or a message of the server. */
export const WatchLine = z.discriminatedUnion("kind", [
  WatchMessage.extend({ watch: z.string() }),
  z.strictObject({ kind: z.literal("heartbeat"), atMs: z.int() }),
  /** The server is shutting down: reconnect with `watch` and `cursor`. */
  z.strictObject({ kind: z.literal("shutdown") }),
  /** The stream ends because the reader's key was revoked. */
  z.strictObject({ kind: z.literal("refused"), error: WireError }),
]);
export type WatchLine = z.infer<typeof WatchLine>;

export const SignUrl = z.strictObject({
  path,
  user,
  method: z.enum(["GET", "PUT"]).default("GET"),
  expiresInMs: z
    .int()
    .min(1_000)
    .max(7 * 24 * 3_600_000)
    .default(3_600_000),
});
export const SignedUrl = z.strictObject({ url: z.string(), expiresAtMs: z.int() });
