import { once } from "node:events";
import type { Lab } from "./lab.ts";

/** A program that prints at once, and what it prints: the first output of a new sandbox. */
export const greeter = { argv: ["/bin/echo", "hi"], greeting: "hi\n" } as const;

/** Measures from the start of `runsc run` to the first byte of the greeter in it. */
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
  if (text !== greeter.greeting) throw new Error(`A process that should print hi printed ${JSON.stringify(text)}`);
}
