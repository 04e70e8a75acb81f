import { rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import type { Fault } from "../../../support/object-servers/faults.ts";
import { outputOf } from "../../host-command.ts";
import type { Place, ServerPair } from "../server-pair.ts";
import type { Cycle } from "./plan.ts";
import type { Subject } from "./subject.ts";

export interface Scene {
  pair: ServerPair;
  subject: Subject;
  /** The disk of both servers. */
  disk: string;
  until: <T>(promise: Promise<T>, what: string) => Promise<T>;
}

/** What a full disk still has. */
const leftBytes = 64 * 1024;

/**
 * Does it to a sandbox that runs on the server of the cycle. Resolves to the server to ask next, and to what was found
 * wrong.
 */
export async function runAction(scene: Scene, cycle: Cycle): Promise<{ next: Place; problems: string[] }> {
  const { pair, subject } = scene;
  const here = pair.places[cycle.at];
  const there = pair.places[cycle.at === 0 ? 1 : 0];
  switch (cycle.action) {
    case "pause":
      await subject.pause(here);
      return { next: here, problems: [] };
    case "hand over":
      return { next: there, problems: [] };
    case "fork":
      return { next: here, problems: await subject.fork(here) };
    case "kill the server":
      await here.server.kill();
      await here.server.restart();
      return { next: here, problems: [] };
    case "kill the server of a stored one": {
      await subject.pause(here);
      await subject.wake(here);
      await here.server.kill();
      const problems = await subject.look(there);
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
      await subject.tryToPause(here);
      pair.bucket.calm();
      return { next: here, problems: [] };
    }
    case "fill the disk":
      await whileFull(scene.disk, () => subject.tryToPause(here));
      return { next: here, problems: [] };
  }
}

/** Its server dies while the store has the first part of a checkpoint in its hands. */
async function killUpload({ pair, subject, until }: Scene, here: Place): Promise<void> {
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    const fault: Fault = { do: "hold", until: new Promise((done) => (release = done)) };
    pair.bucket.faults = ({ key, operation }) => {
      if (!key.includes("checkpoints/") || !/^(?:PutObject|UploadPart)$/.test(operation)) return undefined;
      resolve();
      return fault;
    };
  });
  const pausing = subject.tryToPause(here);
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
