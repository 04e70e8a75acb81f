import { homedir } from "node:os";
import { run, type RunResult } from "@atoll/host";
import { StageFailure } from "../session/stage-context.ts";

export interface GitOptions {
  signal: AbortSignal;
  cwd?: string;
  env?: Readonly<Record<string, string>>;
  input?: Uint8Array | string;
  timeoutMs?: number;
  maxOutputBytes?: number;
}

/**
 * Nothing of the machine's or the user's configuration counts, no program is started for what a repository configures,
 * no other repository is asked for missing objects, and replaced objects are read as they were.
 */
const isolated = {
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_ATTR_NOSYSTEM: "1",
  GIT_ALLOW_PROTOCOL: "none",
  GIT_NO_REPLACE_OBJECTS: "1",
  GIT_OPTIONAL_LOCKS: "0",
  GIT_TERMINAL_PROMPT: "0",
};

/** A repository of another user may be read, because nothing that it configures is run. */
const settings = ["-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];

const timeoutMs = 10 * 60_000;

/** Runs git on the host. Any exit code is a result. */
export function git(args: readonly string[], options: GitOptions): Promise<RunResult> {
  return run("git", [...settings, ...args], { timeoutMs, ...options, env: { ...isolated, ...options.env } });
}

/** Runs git on the host and returns its output; a failure is one of the infrastructure and says what was tried. */
export async function gitChecked(args: readonly string[], purpose: string, options: GitOptions): Promise<string> {
  const { exitCode, stdout, stderr } = await git(args, options);
  if (exitCode === 0) return stdout;
  throw new StageFailure("infrastructure", `Cannot ${purpose}: ${lastLine(stderr) || `git ends with ${exitCode}`}`);
}

/** The environment for fetching: the user's own configuration applies, which has proxies and credentials. */
export const fetching = {
  GIT_CONFIG_GLOBAL: `${homedir()}/.gitconfig`,
  GIT_ALLOW_PROTOCOL: "https:http:ssh:git:file",
  HOME: homedir(),
};

const lastLine = (text: string): string => text.trim().split("\n").at(-1) ?? "";
