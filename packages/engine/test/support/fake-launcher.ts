import { readFileSync, writeFileSync } from "node:fs";
import { TemporaryDirectory } from "./temporary-directory.ts";

/** The last step, and then nothing more: a container that lives on. */
export const livesOn = 'echo "program 1" >&3\nexec sleep 1000';

/**
 * A program in the place of `atoll-guest launch` that does what a shell script says; descriptor 3 is where it tells of
 * its steps.
 */
export class FakeLauncher implements Disposable {
  readonly path: string;
  #directory = new TemporaryDirectory();

  constructor(script: string) {
    this.path = this.#directory.join("launcher");
    const notes = `echo $$ > ${this.#directory.join("pid")}\nprintf '%s\\n' "$@" > ${this.#directory.join("args")}`;
    writeFileSync(this.path, `#!/bin/sh\n${notes}\n${script}\n`, { mode: 0o755 });
  }

  /** What it was started with, a line each; undefined if it was not. */
  get args(): string | undefined {
    try {
      return readFileSync(this.#directory.join("args"), "utf8");
    } catch {
      return undefined;
    }
  }

  get isRunning(): boolean {
    return this.#signal(0);
  }

  [Symbol.dispose](): void {
    this.#signal("SIGKILL");
    this.#directory[Symbol.dispose]();
  }

  /** To its process group; false when there is none. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      const pid = Number(readFileSync(this.#directory.join("pid"), "utf8"));
      return pid > 0 && process.kill(-pid, signal);
    } catch {
      return false;
    }
  }
}
