import { randomBytes } from "node:crypto";
import { link, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { syncDirectory } from "./durable-directory.ts";
import { hasErrno } from "./file-failure.ts";

/** The number grows when a server could not read, or could damage, a store that an older version wrote. */
const layout = "atoll objects 1\n";

/** Marks a new store with its layout, and refuses a store with another layout. */
export async function assertLayout(path: string): Promise<void> {
  const mark = join(path, "layout");
  const found = (await read(mark)) ?? (await write(mark));
  if (found === layout) return;
  throw new SandboxError("unsupported", `Cannot keep objects in ${path}: that directory has another layout`, {
    suggestion: "Use the version of Atoll that made this directory, or another directory.",
    details: { path, found: found.slice(0, 100), expected: layout },
  });
}

async function read(mark: string): Promise<string | undefined> {
  try {
    return await readFile(mark, "utf8");
  } catch (error) {
    if (hasErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

/** Several processes may open a new store at once; exactly one mark appears, complete. */
async function write(mark: string): Promise<string> {
  const temporary = `${mark}.${randomBytes(6).toString("hex")}`;
  try {
    await writeFile(temporary, layout, { flag: "wx", mode: 0o600, flush: true });
    await link(temporary, mark);
  } catch (error) {
    if (!hasErrno(error, "EEXIST")) throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  await syncDirectory(join(mark, ".."));
  return (await read(mark)) ?? "";
}
