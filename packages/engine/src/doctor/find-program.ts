import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { defaultEnvironment } from "@atoll/host";

/** Returns the path of a program that would be started by this name; undefined when there is none. */
export async function findProgram(name: string): Promise<string | undefined> {
  for (const directory of defaultEnvironment.PATH.split(delimiter)) {
    const path = join(directory, name);
    const isProgram = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isProgram) return path;
  }
  return undefined;
}
