import { SpawnRequest } from "@atoll/protocol";
import type { GuestSpawn } from "../../src/guest/requests.ts";

/** Makes a spawn as the channel takes it, with the defaults of a user's request. */
export function spawnOf(argv: string[], parts: Partial<GuestSpawn> = {}): GuestSpawn {
  return { ...SpawnRequest.parse({ argv }), ...parts };
}
