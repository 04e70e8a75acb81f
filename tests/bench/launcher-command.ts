import { readFile } from "node:fs/promises";
import { join } from "node:path";

/** The settings of a sandbox's launch, read from the command line of its launcher. */
export interface LauncherCommand {
  runDir: string;
  cgroups: string[];
  /** The overlays in the order in which they are mounted; `at` is the path in the sandbox. */
  overlays: { at: string; options: string }[];
  /** The runtime's command line up to its verb: the program, then its flags. */
  runtime: string[];
}

const runtimeVerbs = new Set(["run", "restore"]);

export async function readLauncherCommand(pid: number): Promise<LauncherCommand> {
  const line = await readFile(`/proc/${pid}/cmdline`, "utf8");
  return parseLauncherCommand(line.split("\0").slice(0, -1));
}

/** Parses the arguments that docs/guest-protocol.md describes. */
export function parseLauncherCommand(argv: readonly string[]): LauncherCommand {
  const separator = argv.indexOf("--");
  const options = argv.slice(0, separator);
  const valuesAfter = (flag: string, offset: number): string[] =>
    options.flatMap((argument, index) => (argument === flag ? (options[index + offset] ?? []) : []));
  const [runDir] = valuesAfter("--dir", 1);
  const program = argv.slice(separator + 1);
  const verb = program.findIndex((argument) => runtimeVerbs.has(argument));
  if (separator < 0 || runDir === undefined || verb < 1) {
    throw new Error(`Cannot parse the launcher's command line: ${argv.join(" ")}`);
  }
  const targets = valuesAfter("--overlay", 1);
  const mountOptions = valuesAfter("--overlay", 2);
  return {
    runDir,
    cgroups: valuesAfter("--cgroup", 1),
    overlays: targets.map((target, index) => ({
      at: placeInside(target, join(runDir, "rootfs")),
      options: mountOptions[index] ?? "",
    })),
    runtime: program.slice(0, verb),
  };
}

function placeInside(target: string, rootfs: string): string {
  if (target === rootfs) return "/";
  if (target.startsWith(`${rootfs}/`)) return target.slice(rootfs.length);
  throw new Error(`Cannot map the mount ${target}: it is not below ${rootfs}`);
}
