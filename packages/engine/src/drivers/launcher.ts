import { once } from "node:events";
import { createInterface } from "node:readline";
import { bootId, type HostProcess, readStartTicks, startHostProcess } from "@atoll/host";
import { SandboxError, type ContainerRef } from "@atoll/protocol";

export interface LauncherCommand {
  /** The guest's binary, which is also the launcher. */
  guestPath: string;
  runDir: string;
  cgroups: readonly string[];
  /** The cgroup that the launcher freezes at the container's deadline. */
  freezer?: string | undefined;
  overlays: { target: string; options: string }[];
  /** Makes the program the init of new namespaces with this root; without it the program sees the host's. */
  enter?: { root: string; hostname: string };
  /** Whether the program runs under `SCHED_BATCH`; decision 16 says why that is faster. */
  batch?: boolean;
  /** Whether the program is made to believe that files have no extended attributes. */
  noAttributes?: boolean;
  program: string[];
}

export interface LaunchOptions {
  signal: AbortSignal;
  /**
   * What the container needs before anything of it is mounted or started. It is prepared while the launcher enters its
   * cgroup, which takes the kernel a while.
   */
  ready?: Promise<unknown>;
}

export interface Launched {
  ref: Omit<ContainerRef, "id">;
  gone: Promise<void>;
}

export function launcherArguments(command: LauncherCommand): string[] {
  return [
    "launch",
    "--dir",
    command.runDir,
    ...command.cgroups.flatMap((directory) => ["--cgroup", directory]),
    ...(command.freezer === undefined ? [] : ["--freezer", command.freezer]),
    ...command.overlays.flatMap(({ target, options }) => ["--overlay", target, options]),
    ...(command.enter === undefined ? [] : ["--enter", command.enter.root, command.enter.hostname]),
    ...(command.batch === true ? ["--batch"] : []),
    ...(command.noAttributes === true ? ["--no-attributes"] : []),
    "--wait",
    "--",
    ...command.program,
  ];
}

/** Starts a container's parent and waits for the last step. The parent outlives this process. */
export async function launch(
  command: LauncherCommand,
  { signal, ready = Promise.resolve() }: LaunchOptions,
): Promise<Launched> {
  // The caller that passed `ready` gets its failure through `launch`, also when this does not come to awaiting it.
  ready.catch(() => undefined);
  const parent = await startHostProcess(command.guestPath, launcherArguments(command), {
    signal,
    detachedFromServer: true,
    stdin: "pipe",
    extraFds: ["pipe"],
  });
  const gone = parent.wait().then(
    () => undefined,
    () => undefined,
  );
  try {
    await Promise.all([followSteps(parent, signal), ready.then(() => sendStart(parent))]);
    // A launcher that is gone already has written how its program ended, which shows when the FIFOs are opened. No
    // living process has the start time 0.
    const startTicks = (await readStartTicks(parent.pid)) ?? 0;
    return { ref: { pid: parent.pid, startTicks, bootId: await bootId() }, gone };
  } catch (error) {
    await parent.kill("SIGKILL");
    await gone;
    throw error;
  }
}

/** Lets the launcher continue. If it is gone, its reported steps say why. */
async function sendStart(parent: HostProcess): Promise<void> {
  await parent.writeStdin("\n").catch(() => undefined);
  await parent.closeStdin();
}

async function followSteps(parent: HostProcess, signal: AbortSignal): Promise<void> {
  const pipe = parent.readable(3);
  const lines = createInterface({ input: pipe, crlfDelay: Infinity });
  const abort = (): void => {
    pipe.destroy();
    lines.close();
  };
  signal.addEventListener("abort", abort, { once: true });
  try {
    // An abort during the start of the launcher was thrown already.
    signal.throwIfAborted();
    for await (const line of lines) {
      const [word = "", ...rest] = line.split(" ");
      if (word === "error") throw stepFailed(rest[0] ?? "unknown", rest.slice(2).join(" "));
      if (word === "program") return;
    }
    signal.throwIfAborted();
    throw stepFailed("launcher", "it ended before the container was started");
  } finally {
    signal.removeEventListener("abort", abort);
    lines.close();
    pipe.destroy();
    if (!pipe.closed) await once(pipe, "close");
  }
}

function stepFailed(phase: string, text: string): SandboxError {
  return new SandboxError("start_failed", `Cannot start the container: ${phase}: ${text}`, {
    suggestion: "Run `atoll doctor`, which lists what this machine is missing.",
    details: { phase, stderr: text },
  });
}
