import { describe } from "vitest";
import type { ObjectStore } from "../../src/index.ts";
import { bigObjects } from "./contract/big-objects.ts";
import { conditions } from "./contract/conditions.ts";
import { faults } from "./contract/faults.ts";
import { keys } from "./contract/keys.ts";
import { smallObjects } from "./contract/small-objects.ts";

/**
 * What goes wrong with the next `times` calls to a store:
 * - `unavailable`: the call is refused and nothing happens;
 * - `cut`: the connection breaks in the middle of the bytes, and nothing happens;
 * - `lost_answer`: the call takes effect and its answer never comes.
 */
export interface Fault {
  kind: "unavailable" | "cut" | "lost_answer";
  times: number;
}

/** A new, empty place for objects. */
export interface StorePlace {
  store: ObjectStore;
  /** Opens another client of the same place; `close` closes it too. Without it one client plays all parts. */
  another?: () => Promise<ObjectStore>;
  /** Arms a fault; `times: 0` disarms. */
  inject?: (fault: Fault) => void;
  /** The number of bytes from which on uploads are cut into pieces. */
  partBytes?: number;
  close: () => Promise<void>;
}

export type OpenPlace = () => Promise<StorePlace>;

interface ContractOptions {
  timeoutMs?: number;
  /** False for a store without a connection that could fail. */
  hasFaults?: boolean;
}

/** What every store has to do, whatever its kind. */
export function storeContract(name: string, open: OpenPlace, options: ContractOptions = {}): void {
  const timeout = options.timeoutMs ?? 60_000;
  describe(`${name} store`, { timeout }, () => {
    smallObjects(open);
    conditions(open);
    keys(open);
    bigObjects(open);
    if (options.hasFaults !== false) faults(open);
  });
}
