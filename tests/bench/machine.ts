import { arch, availableParallelism, cpus, release, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import { outputOf } from "./host-command.ts";

const repositoryRoot = fileURLToPath(new URL("../..", import.meta.url));

export interface Machine {
  cpu: string;
  cores: number;
  memoryMib: number;
  kernel: string;
  arch: string;
  node: string;
  runsc: string;
}

export async function readMachine(): Promise<Machine> {
  const runsc = await outputOf("runsc", ["--version"]).catch(() => "none");
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryMib: Math.round(totalmem() / 1024 / 1024),
    kernel: release(),
    arch: arch(),
    node: process.version,
    runsc: (runsc.split("\n")[0] ?? "").replace(/^runsc version /, ""),
  };
}

/** Returns the measured commit, with a mark if the tree differs from it; "unknown" outside of a repository. */
export async function readCommit(): Promise<string> {
  try {
    const commit = (await outputOf("git", ["rev-parse", "HEAD"], repositoryRoot)).trim();
    const changes = await outputOf("git", ["status", "--porcelain"], repositoryRoot);
    return changes === "" ? commit : `${commit}-dirty`;
  } catch {
    return "unknown";
  }
}
