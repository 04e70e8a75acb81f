import { z } from "zod";
import { SnapshotInfo, SnapshotList, SnapshotName, SnapshotRef, TakeSnapshot, UpdateSnapshot } from "../snapshot.ts";
import { Id } from "./params.ts";
import type { Route } from "./route.ts";

const Name = z.strictObject({ name: SnapshotName });
/** In a path the slash of `<namespace>/<name>` is written `%2F`. */
const Ref = z.strictObject({ name: SnapshotRef });

export const snapshotRoutes = {
  takeSnapshot: {
    method: "POST",
    path: "/sandboxes/:id/snapshots",
    summary: "Save its files under a name while it goes on",
    verb: "sandboxes",
    params: Id,
    body: TakeSnapshot,
    reply: SnapshotInfo,
    status: 201,
  },
  listSnapshots: {
    method: "GET",
    path: "/snapshots",
    summary: "List snapshots by name",
    verb: "read",
    reply: SnapshotList,
  },
  getSnapshot: {
    method: "GET",
    path: "/snapshots/:name",
    summary: "Describe one snapshot",
    verb: "read",
    params: Ref,
    reply: SnapshotInfo,
  },
  updateSnapshot: {
    method: "PATCH",
    path: "/snapshots/:name",
    summary: "Share a snapshot with every key, or with none again",
    verb: "sandboxes",
    params: Ref,
    body: UpdateSnapshot,
    reply: SnapshotInfo,
  },
  removeSnapshot: {
    method: "DELETE",
    path: "/snapshots/:name",
    summary: "Remove a snapshot; sandboxes that were made of it keep their files",
    verb: "sandboxes",
    params: Ref,
    reply: "empty",
    status: 204,
  },
  exportSnapshot: {
    method: "GET",
    path: "/snapshots/:name/file",
    summary: "Download a snapshot as one file that any server can import",
    verb: "files",
    params: Ref,
    reply: "bytes",
  },
  importSnapshot: {
    method: "PUT",
    path: "/snapshots/:name/file",
    summary: "Make a snapshot from an exported file, once all of the file was checked",
    verb: "sandboxes",
    params: Name,
    body: "bytes",
    reply: SnapshotInfo,
    status: 201,
  },
} as const satisfies Record<string, Route>;
