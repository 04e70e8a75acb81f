import { rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { Fault } from "../../../support/object-servers/faults.ts";
import { outputOf } from "../../host-command.ts";
import type { PairMember, ServerPair } from "../server-pair.ts";
import type { Cycle } from "./plan.ts";
import type { SoakSandbox } from "./soak-sandbox.ts";

export interface Scene {
  pair: ServerPair;
  sandbox: SoakSandbox;
  /** The path of the disk that both servers use. */
  disk: string;
  until: <T>(promise: Promise<T>, what: string) => Promise<T>;
}

/** The space that is left on a full disk. */
const leftBytes = 64 * 1024;

/**
 * Applies the cycle's action to a sandbox that runs on the cycle's server. Resolves to the server that continues, and
 * to the problems found.
 */
export async function runAction(scene: Scene, cycle: Cycle): Promise<{ next: PairMember; problems: string[] }> {
  const { pair, sandbox } = scene;
  const here = pair.members[cycle.at];
  const there = pair.members[cycle.at === 0 ? 1 : 0];
  switch (cycle.action) {
    case "pause":
      await sandbox.pause(here);
      return { next: here, problems: [] };
    case "hand over":
      return { next: there, problems: [] };
    case "fork":
      return { next: here, problems: await sandbox.fork(here) };
    case "kill the server":
      await here.server.kill();
      await here.server.restart();
      return { next: here, problems: [] };
    case "kill the server of a stored sandbox": {
      await sandbox.pause(here);
      await sandbox.wake(here);
      await here.server.kill();
      const problems = await sandbox.check(there);
      await here.server.restart();
      return { next: there, problems };
    }
    case "kill an upload":
      await killUpload(scene, here);
      return { next: here, problems: [] };
    case "refuse requests of the store": {
      const fault: Fault = cycle.isCut ? { do: "cut" } : { do: "refuse", status: 503, code: "SlowDown" };
      let left = cycle.faults;
      pair.bucket.faults = ({ key }) => (key.includes("checkpoints/") && left-- > 0 ? fault : undefined);
      await sandbox.tryToPause(here);
      pair.bucket.calm();
      return { next: here, problems: [] };
    }
    case "fill the disk":
      await whileFull(scene.disk, () => sandbox.tryToPause(here));
      return { next: here, problems: [] };
  }
}

/** Kills the server while the store holds back the first part of a checkpoint. */
async function killUpload({ pair, sandbox, until }: Scene, here: PairMember): Promise<void> {
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    const fault: Fault = { do: "hold", until: new Promise((done) => (release = done)) };
    pair.bucket.faults = ({ key, operation }) => {
      if (!key.includes("checkpoints/") || !/^(?:PutObject|UploadPart)$/.test(operation)) return undefined;
      resolve();
      return fault;
    };
  });
  const pausing = sandbox.tryToPause(here);
  try {
    await until(Promise.race([held, pausing]), "upload of a checkpoint");
    await here.server.kill();
  } finally {
    pair.bucket.calm();
    release();
  }
  await pausing;
  await here.server.restart();
}

async function whileFull(disk: string, work: () => Promise<void>): Promise<void> {
  const filler = join(disk, "filler");
  const { bavail, bsize } = await statfs(disk);
  await outputOf("fallocate", ["-l", String(bavail * bsize - leftBytes), filler]);
  try {
    await work();
  } finally {
    await rm(filler);
  }
}
