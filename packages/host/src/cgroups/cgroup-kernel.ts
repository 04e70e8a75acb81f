import { constants, readFileSync } from "node:fs";
import { mkdir, open, readdir, rmdir } from "node:fs/promises";
import { hasErrno } from "../support/errno.ts";

/** What cgroups need of the kernel. Tests use a fake that follows the rules of both versions. */
export interface CgroupKernel {
  /** Returns undefined when there is no such file or group. */
  read(path: string): Promise<string | undefined>;
  /** Rejects with ENOENT when there is no such file: the kernel makes a controller's files, and a write must not. */
  write(path: string, value: string): Promise<void>;
  makeDirectory(path: string): Promise<void>;
  removeDirectory(path: string): Promise<void>;
  /** Returns the names of the groups directly below; none when the group does not exist. */
  children(path: string): Promise<string[]>;
  kill(pid: number): void;
}

export const hostCgroupKernel: CgroupKernel = {
  async read(path) {
    try {
      // This is synchronous because no disk is behind it: the kernel answers in microseconds, and a thread pool would
      // be slower.
      return readFileSync(path, "utf8");
    } catch (error) {
      // ENODEV: the group was removed between open and read.
      if (hasErrno(error, "ENOENT", "ENODEV")) return undefined;
      throw error;
    }
  },

  async write(path, value) {
    // The kernel takes each write as one value, and some files can only be written.
    const file = await open(path, constants.O_WRONLY);
    try {
      await file.write(value);
    } finally {
      await file.close();
    }
  },

  async makeDirectory(path) {
    await mkdir(path);
  },

  async removeDirectory(path) {
    await rmdir(path);
  },

  async children(path) {
    try {
      const entries = await readdir(path, { withFileTypes: true });
      return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name);
    } catch (error) {
      if (hasErrno(error, "ENOENT", "ENODEV")) return [];
      throw error;
    }
  },

  kill(pid) {
    // The kernel lists a process that is just leaving its PID namespace as 0; a signal to 0 would end this process and
    // its whole group.
    if (pid <= 0) return;
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (!hasErrno(error, "ESRCH")) throw error;
    }
  },
};
