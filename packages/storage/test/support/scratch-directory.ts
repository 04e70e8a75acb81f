import { access, constants, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * A new directory for a store. In memory where the machine has such a place: what is tested here does not end with the
 * power.
 */
export async function makeScratchDirectory(): Promise<string> {
  const memory = "/dev/shm";
  const isThere = await access(memory, constants.W_OK).then(
    () => true,
    () => false,
  );
  return mkdtemp(join(isThere ? memory : tmpdir(), "atoll-objects-"));
}
