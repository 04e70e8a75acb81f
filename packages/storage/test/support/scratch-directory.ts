import { access, constants, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Makes a new directory for a store, in memory where the machine has such a place: these tests need no durability. */
export async function makeScratchDirectory(): Promise<string> {
  const memory = "/dev/shm";
  const isThere = await access(memory, constants.W_OK).then(
    () => true,
    () => false,
  );
  return mkdtemp(join(isThere ? memory : tmpdir(), "atoll-objects-"));
}
