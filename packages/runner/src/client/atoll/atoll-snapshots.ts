import { isSandboxError } from "@atoll/protocol";
import type { Atoll } from "@atoll/sdk";
import type { SnapshotStore } from "../sandbox-client.ts";

/** The snapshots that the key may see. */
export class AtollSnapshots implements SnapshotStore {
  readonly #atoll: Atoll;

  constructor(atoll: Atoll) {
    this.#atoll = atoll;
  }

  async has(name: string, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#atoll.snapshots.get(name, { signal });
      return true;
    } catch (error) {
      if (isSandboxError(error, "not_found")) return false;
      throw error;
    }
  }

  async list(signal: AbortSignal): Promise<{ name: string; bytes: number; createdAtMs: number }[]> {
    const snapshots = await this.#atoll.snapshots.list({ signal });
    return snapshots.map(({ name, storedBytes, createdAtMs }) => ({ name, bytes: storedBytes, createdAtMs }));
  }

  async remove(name: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#atoll.snapshots.remove(name, { signal });
    } catch (error) {
      if (!isSandboxError(error, "not_found")) throw error;
    }
  }
}
