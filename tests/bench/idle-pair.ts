import { once } from "node:events";
import type { Sandbox } from "@atoll/engine";
import type { Lab } from "./lab.ts";
import type { RawBundle } from "./raw-runsc.ts";

/** A command that prints one line and then does nothing. */
const idleArgv = ["/bin/sh", "-c", "echo ready; exec sleep infinity"];

/** Starts a raw container and waits until its process has printed. */
export async function startIdleRival(lab: Lab): Promise<RawBundle> {
  const bundle = await lab.rival.prepare(idleArgv);
  try {
    const stdout = bundle.start();
    await lab.until(once(stdout, "data"), "answer of a raw container");
    stdout.destroy();
    return bundle;
  } catch (cause) {
    const error = new Error(`Cannot start a raw container: ${await bundle.stderr()}`, { cause });
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/** Runs `use` with one idle sandbox of ours and one of the rival's. */
export async function withIdlePair<T>(
  lab: Lab,
  use: (pair: { sandbox: Sandbox; bundle: RawBundle }) => Promise<T>,
): Promise<T> {
  await using sandbox = await lab.create();
  await using bundle = await startIdleRival(lab);
  return await use({ sandbox, bundle });
}
