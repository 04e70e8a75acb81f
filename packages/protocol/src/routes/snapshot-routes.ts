import { z } from "zod";
import { SnapshotInfo, SnapshotList, SnapshotName, TakeSnapshot } from "../snapshot.ts";
import { Id } from "./params.ts";
import type { Route } from "./route.ts";

const Name = z.strictObject({ name: SnapshotName });

export const snapshotRoutes = {
  takeSnapshot: {
    method: "POST",
    path: "/sandboxes/:id/snapshots",
    summary: "Save its files under a name; it goes on",
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
    summary: "Tell about one snapshot",
    verb: "read",
    params: Name,
    reply: SnapshotInfo,
  },
  removeSnapshot: {
    method: "DELETE",
    path: "/snapshots/:name",
    summary: "Remove a snapshot; sandboxes that were made of it keep their files",
    verb: "sandboxes",
    params: Name,
    reply: "empty",
    status: 204,
  },
  exportSnapshot: {
    method: "GET",
    path: "/snapshots/:name/file",
    summary: "Download a snapshot as one file that any server can import",
    verb: "files",
    params: Name,
    reply: "bytes",
  },
  importSnapshot: {
    method: "PUT",
    path: "/snapshots/:name/file",
    summary: "Make a snapshot of an exported file; it is there when all of it was checked",
    verb: "sandboxes",
    params: Name,
    body: "bytes",
    reply: SnapshotInfo,
    status: 201,
  },
} as const satisfies Record<string, Route>;
