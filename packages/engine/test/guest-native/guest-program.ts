import { chmodSync, copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildGuest } from "../../../../tools/setup/guest.mjs";

/** `sanitized` stops at memory errors and undefined behaviour; `release` is what sandboxes get. */
export type GuestBuild = "sanitized" | "release";

/** A build of a fresh checkout takes a while; every later one is found in the cache. */
export const buildTimeoutMs = 600_000;
/** The timeout of tests that wait for real processes, on a machine that may be busy with other tests. */
export const testTimeoutMs = 300_000;

export function guestProgram(build: GuestBuild): Promise<string> {
  return buildGuest({ sanitize: build === "sanitized" });
}

/** Wraps a command so that it dies with the tests, because a guest does not end with its host. */
export function dyingWithTests(command: readonly string[]): [command: string, ...args: string[]] {
  return ["setpriv", "--pdeathsig=KILL", ...command];
}

/**
 * Returns a command that runs a guest which may get any input, even an order to remove `/`: as root it becomes a user
 * without rights, with a network and a host name of its own. A user who is not root risks only their own files, which a
 * random path hardly hits.
 */
export function jailed(program: string, dir: string): string[] {
  if (process.getuid?.() !== 0) return [program];
  // Other users cannot enter the cache that the program was built in.
  const copy = join(dir, "guest");
  copyFileSync(program, copy);
  chmodSync(copy, 0o755);
  chmodSync(dir, 0o777);
  const user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"];
  return ["unshare", "--net", "--uts", "--ipc", "--", ...user, copy];
}

/**
 * The directory where the sanitizers of a guest, its tools and its launcher write what they find: the guest's own
 * stderr is closed, and the stderr of a tool is a part of its answer.
 */
export class SanitizerReports implements Disposable {
  #dir = mkdtempSync(join(tmpdir(), "atoll-sanitizer-"));

  constructor() {
    // Tools run as other users.
    chmodSync(this.#dir, 0o1777);
  }

  get environment(): Record<string, string> {
    const path = join(this.#dir, "report");
    return {
      // The guest cannot be traced, so it cannot be searched for leaks; memory.test.ts measures its size instead.
      ASAN_OPTIONS: `log_path=${path}:detect_leaks=0:abort_on_error=0`,
      UBSAN_OPTIONS: `log_path=${path}:print_stacktrace=1`,
    };
  }

  read(): string {
    return readdirSync(this.#dir)
      .map((name) => readFileSync(join(this.#dir, name), "utf8"))
      .join("\n");
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}
