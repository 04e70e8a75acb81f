import { SandboxError, type CheckpointManifest, type ImportedRecord, type LayerPart } from "@atoll/protocol";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import type { Sandbox } from "../sandbox.ts";

/** A sandbox from elsewhere: its record, one checkpoint, and the files that belong to it. */
export interface SandboxImport {
  record: ImportedRecord;
  manifest: CheckpointManifest;
  /** With the files of the memory image, named as in the manifest. On the same filesystem as the data directory; it is moved from there. */
  memoryDir: string;
  /** The archive that the manifest names, if it does. */
  owner?: string | undefined;
  /** Archives of those layers that are not here. */
  layers: { part: LayerPart; archive: string }[];
}

export interface ImportOptions {
  signal?: AbortSignal;
  /** As for `create`. */
  onEgress?: EgressHandler | undefined;
}

/** Makes a paused sandbox of what comes from another machine. Everything is verified; when it rejects, nothing is left of it here. */
export async function importSandbox(
  _context: EngineContext,
  { record }: SandboxImport,
  _options: ImportOptions = {},
): Promise<Sandbox> {
  throw new SandboxError("unsupported", `Cannot import sandbox ${record.id}: this build has no archives yet`);
}
