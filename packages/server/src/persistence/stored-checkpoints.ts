import { SandboxError, type SandboxId } from "@atoll/protocol";
import type { StoredCheckpoint } from "./checkpoint-manifest.ts";
import type { OwnedSandboxes } from "./owned-sandboxes.ts";
import type { PersistenceOptions } from "./persistence-options.ts";
import { SandboxHandle } from "./sandbox-handle.ts";
import { neededCheckpoints } from "./sandbox-metadata.ts";

export interface StoredCheckpointsOptions extends Pick<PersistenceOptions, "archive" | "home" | "engine" | "log"> {
  owned: OwnedSandboxes;
}

/** The way back to a checkpoint. One of the two is called when it is over; what they cannot write is told in the log. */
export interface WayBack {
  /** The sandbox runs as of this checkpoint: if it is stored, whoever takes it over goes on from there, too. */
  taken(): Promise<void>;
  /** Nothing came of it. */
  left(): Promise<void>;
}

/** What the store has of the checkpoints of persistent sandboxes, for those whose turn it is. What their metadata need is there, whatever collectors do. */
export class StoredCheckpoints {
  readonly #options: StoredCheckpointsOptions;

  constructor(options: StoredCheckpointsOptions) {
    this.#options = options;
  }

  /**
   * Sees to it that a checkpoint stays in the store until the metadata have another `checkpoint`, or nothing `wanted`. Undefined: it is not there. The metadata say so first, then it is renewed:
   * a collector that has asked before that removes nothing, however late it is.
   */
  async claim(handle: SandboxHandle, n: number): Promise<StoredCheckpoint | undefined> {
    const { archive } = this.#options;
    const { id, metadata } = handle;
    const stored = await archive?.find(id, n);
    if (stored === undefined || metadata.checkpoint?.n === n) return stored;
    await handle.write({ wanted: n });
    if ((await archive?.renew(id, n)) === true) return stored;
    await handle.write({ wanted: undefined });
    return undefined;
  }

  /** Before it is gone back to a checkpoint. Without the store that is possible as well; then nobody else goes back with it. */
  async wayBackTo(id: SandboxId, n: number): Promise<WayBack> {
    const { owned, log } = this.#options;
    const handle = owned.find(id);
    const unlessItFails = async (work: () => Promise<void>): Promise<void> => {
      await work().catch((error: unknown) => {
        log.warn({ err: error, sandboxId: id, checkpoint: n }, "rollback not told to the stores");
      });
    };
    let stored: StoredCheckpoint | undefined;
    await unlessItFails(async () => {
      stored = await this.claim(handle, n);
    });
    return {
      taken: () =>
        unlessItFails(async () => {
          if (stored === undefined) return;
          const { createdAtMs } = stored.manifest;
          await handle.write({ checkpoint: { n, createdAtMs }, wanted: undefined });
        }),
      left: () =>
        unlessItFails(async () => {
          if (handle.metadata.wanted !== undefined) await handle.write({ wanted: undefined });
        }),
    };
  }

  /** Here and in the store. Rejects with `in_use` for one that the sandbox stands on, here or for others. */
  remove(id: SandboxId, n: number, removeHere: () => Promise<boolean>): Promise<boolean> {
    const { owned, home, archive } = this.#options;
    return owned.inTurn(id, async () => {
      const handle = owned.find(id);
      if (handle.metadata.checkpoint?.n === n) throw neededElsewhere(id, n);
      // Of a rollback that came to nothing, since it is our turn.
      if (handle.metadata.wanted === n) await handle.write({ wanted: undefined });
      const wasHere = await removeHere();
      const mayGo = async (): Promise<boolean> => {
        const metadata = await SandboxHandle.read(home, id);
        return metadata === undefined || !neededCheckpoints(metadata).includes(n);
      };
      const retirement = await archive?.remove(id, n, { mayGo });
      if (retirement === "kept") throw neededElsewhere(id, n);
      return wasHere || retirement === "gone";
    });
  }
}

function neededElsewhere(sandboxId: SandboxId, checkpoint: number): SandboxError {
  return new SandboxError("in_use", `Cannot remove checkpoint ${checkpoint}: the sandbox goes on from it elsewhere`, {
    suggestion: "Pause the sandbox, which stores a newer one, or kill it.",
    details: { sandboxId, checkpoint },
  });
}
