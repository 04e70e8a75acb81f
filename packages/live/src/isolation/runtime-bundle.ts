import { bundleProgram, defaultCacheDir } from "../programs/bundle.ts";

const entry = new URL("../runtime/main.ts", import.meta.url);

let made: Promise<string> | undefined;

/** The path of the runtime as one file of JavaScript, made once per version of its sources. */
export function runtimeBundle(cacheDir = defaultCacheDir): Promise<string> {
  made ??= bundleProgram("runtime", entry, cacheDir);
  // What could not be made is tried again by the next caller.
  made.catch(() => (made = undefined));
  return made;
}
