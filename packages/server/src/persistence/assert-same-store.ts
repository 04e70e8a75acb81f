import type { Engine } from "@atoll/engine";
import { SandboxError, type SandboxId } from "@atoll/protocol";
import { loadSettings } from "../manager/sandbox-settings.ts";
import { missingSetting, type SandboxStores } from "./sandbox-handle.ts";
import type { ServerIdentity } from "./server-identity.ts";
import { identifyStore } from "./store-identity.ts";

export interface SameStoreOptions {
  engine: Engine;
  sandboxStores: SandboxStores;
  identity: ServerIdentity;
}

/**
 * Throws if the metadata store is not the one in which the persistent sandboxes of this data directory are stored:
 * nothing in another store is about them. If there are none, any store is accepted and remembered.
 */
export async function assertSameStore({ engine, sandboxStores, identity }: SameStoreOptions): Promise<void> {
  const here = await persistentHere(engine);
  const setting = missingSetting(sandboxStores);
  if (here.length > 0 && setting !== undefined) {
    throw new SandboxError("unsupported", `Cannot start: ${setting} is none, and ${describe(here)} here`, {
      suggestion: "Start it with the previous store, and kill the sandboxes that are not needed any more.",
      details: { setting },
    });
  }
  if (sandboxStores.metadataStore === undefined) return;
  const { metadataStore: expected } = identity;
  const found = await identifyStore(sandboxStores.metadataStore);
  if (here.length > 0 && expected !== undefined && expected !== found) {
    throw new SandboxError(
      "conflict",
      `Cannot start: metadataStore is ${sandboxStores.metadataStore.place}, which is ${found}: ` +
        `${describe(here)} here, and stored in ${expected}`,
      {
        suggestion:
          "Start it with the previous store: mount its disk, or correct the setting. If that store is gone for good, " +
          "remove metadataStore from server.json in the data directory.",
        details: { setting: "metadataStore", expected, found },
      },
    );
  }
  await identity.rememberMetadataStore(found);
}

/**
 * Returns the persistent sandboxes of this data directory. Those with unreadable settings are left alone everywhere.
 */
async function persistentHere(engine: Engine): Promise<SandboxId[]> {
  const ids = await Promise.all(
    engine.list().map(async ({ id }) => {
      const facts = await loadSettings(engine.get(id)).catch(() => undefined);
      return facts?.persistent === true ? [id] : [];
    }),
  );
  return ids.flat();
}

function describe([first, ...others]: readonly SandboxId[]): string {
  return others.length === 0
    ? `persistent sandbox ${first} is`
    : `persistent sandbox ${first} and ${others.length} more are`;
}
