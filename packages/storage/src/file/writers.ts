import { open, readdir, unlink } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { hasErrno } from "./file-failure.ts";
import { isEarlierRun, thisMachine } from "./machine.ts";

/** At the end of the name of a socket that may not listen yet. */
export const newbornMark = ".new";

const form = /^(?<id>[0-9a-f]{24})\.(?<machine>[0-9a-f]{12})\.(?<boot>[0-9a-f]{12})(?:\.new)?$/;

/**
 * The writers of a store that may still be alive, as of one moment. A writer that is not among them is dead, and so is
 * every write that it had under way. Names of the dead are removed.
 */
export async function findLivingWriters(writersDir: string): Promise<Set<string>> {
  const living = new Set<string>();
  for (const name of await readdir(writersDir)) {
    const { id, machine, boot } = form.exec(name)?.groups ?? {};
    if (id === undefined || machine === undefined || boot === undefined) continue;
    if (await isDead(writersDir, name, { id: machine, boot })) await bury(join(writersDir, name));
    else living.add(id);
  }
  return living;
}

async function isDead(writersDir: string, name: string, machine: { id: string; boot: string }): Promise<boolean> {
  // The sockets of another machine on the same disk cannot be asked: its writers count as alive.
  if (machine.boot !== thisMachine().boot) return isEarlierRun(machine, thisMachine());
  const directory = await open(writersDir, "r");
  try {
    return await isRefused(`/proc/self/fd/${directory.fd}/${name}`);
  } finally {
    await directory.close();
  }
}

/** Connecting needs nothing of the process at the other end but to exist: also one that is stopped counts as alive. */
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

async function bury(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
  }
}
