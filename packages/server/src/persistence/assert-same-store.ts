import type { Engine } from "@atoll/engine";
import { SandboxError, type SandboxId } from "@atoll/protocol";
import { loadSettings } from "../manager/sandbox-settings.ts";
import { missingSetting, type HandleHome } from "./sandbox-handle.ts";
import type { ServerIdentity } from "./server-identity.ts";
import { identifyStore } from "./store-identity.ts";

export interface SameStoreOptions {
  engine: Engine;
  home: HandleHome;
  identity: ServerIdentity;
}

/**
 * Refuses a store of metadata that is not the one which the persistent sandboxes of this data directory are in:
 * whatever it says, or does not say, is not about them. Without any of those any store will do, and is remembered.
 */
export async function assertSameStore({ engine, home, identity }: SameStoreOptions): Promise<void> {
  const here = await persistentHere(engine);
  const setting = missingSetting(home);
  if (here.length > 0 && setting !== undefined) {
    throw new SandboxError("unsupported", `Cannot start: ${setting} is none, and ${describe(here)} here`, {
      suggestion: "Start it with the store of before, and kill there what is not wanted any more.",
      details: { setting },
    });
  }
  if (home.metadataStore === undefined) return;
  const { metadataStore: expected } = identity;
  const found = await identifyStore(home.metadataStore);
  if (here.length > 0 && expected !== undefined && expected !== found) {
    throw new SandboxError(
      "conflict",
      `Cannot start: metadataStore is ${home.metadataStore.place}, which is ${found}: ${describe(here)} here, and kept in ${expected}`,
      {
        suggestion:
          "Start it with the store of before: mount its disk, or correct the setting. If that store is gone for good, remove metadataStore from server.json in the data directory.",
        details: { setting: "metadataStore", expected, found },
      },
    );
  }
  await identity.rememberMetadataStore(found);
}

/** Those whose facts cannot be read are left alone by everybody. */
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
