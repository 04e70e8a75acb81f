import { randomBytes } from "node:crypto";
import { link, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { hasErrno } from "./file-failure.ts";

/** Makes a file appear under its name when it is complete, and never replaces another file. */
export async function land(path: string, fill: (temporary: string) => Promise<void>): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path).slice(0, 100)}.${randomBytes(6).toString("hex")}.part`);
  try {
    await fill(temporary);
    await link(temporary, path);
  } catch (error) {
    if (hasErrno(error, "EEXIST")) {
      throw new SandboxError("already_exists", `Cannot download to ${path}: there is a file`, { cause: error });
    }
    throw error;
  } finally {
    await rm(temporary, { force: true });
  }
}
