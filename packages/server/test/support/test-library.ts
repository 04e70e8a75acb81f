import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError, TemplateName } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { pino } from "pino";
import { SnapshotLibrary, type SnapshotLibraryOptions } from "../../src/snapshots/snapshot-library.ts";
import type { SnapshotUser } from "../../src/snapshots/snapshot-user.ts";

/** The files of every sandbox of the engine below. */
export const testFiles: Buffer = Buffer.from("all files of a sandbox ".repeat(1_000));

/** A key that sees only its own snapshots. */
export const testUser: SnapshotUser = { keyId: "me", namespace: "me", seesAll: false };

/** An engine whose archives are arbitrary bytes. */
export const testEngine: SnapshotLibraryOptions["engine"] = {
  saveFiles: async (_, toPath, { maxBytes = Infinity }) => {
    if (testFiles.byteLength > maxBytes) throw new SandboxError("limit_reached", "Cannot save as much");
    await writeFile(toPath, testFiles);
    const template = TemplateName.parse("host");
    const sha256 = createHash("sha256").update(testFiles).digest("hex");
    return { template, base: template, trees: 1, sizeBytes: testFiles.byteLength, sha256, frozenMs: 1 };
  },
  checkFiles: async ({ archive }) => {
    if (!testFiles.equals(await readFile(archive))) throw new SandboxError("unrestorable", "Cannot use the files");
  },
};

export function openTestLibrary(
  directory: string,
  store: ObjectStore,
  options: Partial<SnapshotLibraryOptions> = {},
): Promise<SnapshotLibrary> {
  return SnapshotLibrary.open({
    store,
    engine: testEngine,
    scratchDir: join(directory, "scratch"),
    maxBytes: 1 << 20,
    emit: () => undefined,
    log: pino({ enabled: false }),
    ...options,
  });
}
