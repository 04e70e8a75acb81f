import { SandboxId, SnapshotName, TemplateName } from "@atoll/protocol";
import { expect, onTestFinished, test } from "vitest";
import { SnapshotStore } from "../../packages/server/src/snapshots/snapshot-store.ts";
import { useRandomFiles } from "../support/object-servers/random-file.ts";
import { openTestS3, s3PieceBytes } from "../support/object-servers/test-s3.ts";

const makeFile = useRandomFiles();
const radosgw = { ifMatch: "bare", completeConditions: "ignored", deleteConditions: "ignored" } as const;

test("an archive is uploaded in parts, also to a store that ignores conditions at the end of an upload", async () => {
  const { open, server, close } = await openTestS3(radosgw);
  onTestFinished(close);
  const { path, sha256, sizeBytes } = await makeFile(2 * s3PieceBytes + 1);
  const host = TemplateName.parse("host");
  const header = {
    version: 1,
    name: SnapshotName.parse("tools"),
    template: host,
    base: host,
    sandboxId: SandboxId.parse("s".repeat(20)),
    createdAtMs: 0,
    files: { sizeBytes, sha256, trees: 1 },
  } as const;
  const file = { path, sizeBytes, sha256, encoding: "plain" } as const;
  const snapshots = new SnapshotStore(open());
  await snapshots.publish(header, file, { owner: "me", namespace: "me", signal: new AbortController().signal });
  const parts = server.seen.filter(({ operation, key }) => operation === "UploadPart" && key.startsWith("snapshots/"));
  expect(parts.map((part) => part.sizeBytes).toSorted((a, b) => b - a)).toEqual([s3PieceBytes, s3PieceBytes, 1 + 16]);
});
