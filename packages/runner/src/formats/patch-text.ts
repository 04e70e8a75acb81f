import { dirname, isAbsolute, resolve } from "node:path";
import { readTextFile } from "./source.ts";

/** Whether a text is a change in the unified format, and not the path of a file with one. */
const isPatch = (text: string): boolean => /^(?:diff |--- |Index: |@@ )/m.test(text);

/** The text of a patch that a configuration has, or names relative to its own file. */
export async function readPatch(given: string, configFile: string): Promise<string> {
  return given === "" || isPatch(given) ? given : readTextFile(relativeTo(configFile, given));
}

export const relativeTo = (file: string, path: string): string =>
  isAbsolute(path) ? path : resolve(dirname(file), path);
