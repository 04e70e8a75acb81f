import { randomUUID } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { CallOptions, ObjectStore } from "./object-store.ts";

/**
 * Several widely used servers answer well and ignore conditions, so only a trial shows whether a store honours them.
 */
export async function probeConditions(store: ObjectStore, options: CallOptions = {}): Promise<void> {
  const key = `probe/${randomUUID()}`;
  const bytes = (text: string) => Buffer.from(text);
  try {
    const first = await store.put(key, bytes("first"), { ...options, if: "absent" });
    await mustConflict("created an object that exists already", () =>
      store.put(key, bytes("second"), { ...options, if: "absent" }),
    );
    const second = await store.put(key, bytes("second"), { ...options, if: first.version });
    if (second.version === first.version) refuse("gave two versions the same name");
    await mustConflict("replaced a version that is no longer the present one", () =>
      store.put(key, bytes("third"), { ...options, if: first.version }),
    );
    await mustConflict("removed a version that is no longer the present one", () =>
      store.remove(key, { ...options, if: first.version }),
    );
    await store.remove(key, { ...options, if: second.version });
    await mustConflict("replaced an object that was removed", () =>
      store.put(key, bytes("fourth"), { ...options, if: second.version }),
    );
  } finally {
    // The object may exist or not; the result of the probe matters more.
    await store.remove(key).catch(() => undefined);
  }

  async function mustConflict(seen: string, attempt: () => Promise<unknown>): Promise<void> {
    try {
      await attempt();
    } catch (error) {
      if (isSandboxError(error, "conflict")) return;
      throw error;
    }
    refuse(seen);
  }

  function refuse(seen: string): never {
    throw new SandboxError("unsupported", `Cannot rely on ${store.place}: it ${seen}`, {
      suggestion: "Use a store that honours conditional writes.",
      details: { place: store.place, seen },
    });
  }
}
