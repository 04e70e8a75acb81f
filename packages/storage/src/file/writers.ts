import { open, readdir, unlink } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { hasErrno } from "./file-failure.ts";
import { isEarlierRun, thisMachine } from "./machine.ts";

/** The end of the name of a socket that may not listen yet. */
export const notListeningMark = ".new";

const form = /^(?<id>[0-9a-f]{24})\.(?<machine>[0-9a-f]{12})\.(?<boot>[0-9a-f]{12})(?:\.new)?$/;

/**
 * Returns the writers of a store that may still be alive at this moment. A writer that is not among them is dead, and
 * so are all its writes. The sockets of dead writers are removed.
 */
export async function findLivingWriters(writersDir: string): Promise<Set<string>> {
  const living = new Set<string>();
  for (const name of await readdir(writersDir)) {
    const { id, machine, boot } = form.exec(name)?.groups ?? {};
    if (id === undefined || machine === undefined || boot === undefined) continue;
    if (await isDead(writersDir, name, { id: machine, boot })) await removeSocket(join(writersDir, name));
    else living.add(id);
  }
  return living;
}

async function isDead(writersDir: string, name: string, machine: { id: string; boot: string }): Promise<boolean> {
  // The sockets of another machine on the same disk do not answer, so its writers count as alive.
  if (machine.boot !== thisMachine().boot) return isEarlierRun(machine, thisMachine());
  const directory = await open(writersDir, "r");
  try {
    return await isRefused(`/proc/self/fd/${directory.fd}/${name}`);
  } finally {
    await directory.close();
  }
}

/** The kernel accepts a connection for any process that exists: a stopped process counts as alive, too. */
async function isRefused(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.on("connect", () => {
      socket.destroy();
      resolve(false);
    });
    socket.on("error", (error) => {
      resolve(hasErrno(error, "ECONNREFUSED", "ENOENT"));
    });
  });
}

async function removeSocket(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
  }
}
