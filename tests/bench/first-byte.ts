import { once } from "node:events";
import type { Lab } from "./lab.ts";

/** Says something at once, and so the first thing that a new sandbox has to say. */
export const greeter = { argv: ["/bin/echo", "hi"], greeting: "hi\n" } as const;

/** From the start of `runsc run` to the first byte of the greeter in it. */
export async function timeRawFirstByte(lab: Lab): Promise<number> {
  await using bundle = await lab.rival.prepare([...greeter.argv]);
  const startMs = performance.now();
  const stdout = bundle.start();
  const [data] = (await lab.until(once(stdout, "data"), "first byte of runsc run")) as [Buffer];
  const tookMs = performance.now() - startMs;
  assertGreeting(data.toString());
  await bundle.exited();
  stdout.destroy();
  return tookMs;
}

export function assertGreeting(text: string): void {
  if (text !== greeter.greeting) throw new Error(`A process that should say hi said ${JSON.stringify(text)}`);
}
