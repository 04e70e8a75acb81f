import { readFileSync, writeFileSync } from "node:fs";
import { TemporaryDirectory } from "./temporary-directory.ts";

/** Reports the last step and does nothing more, like a container that still runs. */
export const livesOn = 'echo "program 1" >&3\nexec sleep 1000';

/** A program in the place of `atoll-guest launch` that runs a shell script, which reports its steps on descriptor 3. */
export class FakeLauncher implements Disposable {
  readonly path: string;
  #directory = new TemporaryDirectory();

  constructor(script: string) {
    this.path = this.#directory.join("launcher");
    const notes = `echo $$ > ${this.#directory.join("pid")}\nprintf '%s\\n' "$@" > ${this.#directory.join("args")}`;
    writeFileSync(this.path, `#!/bin/sh\n${notes}\n${script}\n`, { mode: 0o755 });
  }

  /** The arguments that it was started with, a line each; undefined if it was not started. */
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

  /** Signals its process group; returns false when there is none. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    try {
      const pid = Number(readFileSync(this.#directory.join("pid"), "utf8"));
      return pid > 0 && process.kill(-pid, signal);
    } catch {
      return false;
    }
  }
}
