import { SandboxError, type ErrorCode } from "@atoll/protocol";
import { succeeded, type CommandEnd } from "../../models/command.ts";
import type { SandboxLimits } from "../../models/sandbox-config.ts";
import { execOnHost, runCommand, type HostCommandResult } from "../host-command.ts";
import { readProgram } from "../host-output.ts";
import type { OutputSink } from "../sandbox-client.ts";

export interface ContainerEngineOptions {
  /** Programs with the command line of docker. */
  program?: "docker" | "podman";
  /** Words before the verb, such as `["--host", "unix:///run/docker.sock"]`. */
  globalArgs?: readonly string[];
  /** What the program needs of the environment, such as `HOME` and `DOCKER_HOST`. */
  env?: Readonly<Record<string, string>>;
}

export interface ContainerOptions {
  image: string;
  name: string;
  labels: Readonly<Record<string, string>>;
  env: Readonly<Record<string, string>>;
  limits: SandboxLimits;
  hasNetwork: boolean;
  /** `never` for images that only this machine can have. */
  pull: "missing" | "never";
}

export interface ContainerExec {
  argv: readonly string[];
  user: string;
  cwd: string;
  env?: Readonly<Record<string, string>>;
  stdin?: Uint8Array;
  timeoutMs: number;
  silentTimeoutMs?: number;
  /** Ends everything that runs inside: the program of the host is only the near end. */
  kill: () => Promise<void>;
}

export interface ContainerState {
  isRunning: boolean;
  isOutOfMemory: boolean;
}

/** What set-up needs as root, and nothing that reaches beyond the container. */
const capabilities = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETGID", "SETUID", "KILL"];

const timeoutMs = 60_000;
/** For what may fetch an image, or write gigabytes. */
const longTimeoutMs = 30 * 60_000;

/** The command line of docker or podman: one function per verb, with a time limit and an error that says what to do. */
export class ContainerEngine {
  readonly program: "docker" | "podman";
  readonly #globalArgs: readonly string[];
  readonly #env: Readonly<Record<string, string>>;
  /** Podman's monitor of a container that runs out of memory writes a file to its working directory: here it cannot. */
  readonly #place: { cwd?: string };

  constructor({ program = "docker", globalArgs = [], env = {} }: ContainerEngineOptions = {}) {
    this.program = program;
    this.#globalArgs = globalArgs;
    this.#env = env;
    this.#place = program === "podman" ? { cwd: "/proc" } : {};
  }

  /** Starts a container that does nothing until `exec`, with an init that reaps what commands leave. */
  async run(options: ContainerOptions, signal: AbortSignal): Promise<string> {
    const { image, name, labels, env, limits, hasNetwork, pull } = options;
    const memory = String(limits.memoryBytes);
    const args = [
      ["run", "--detach", "--init", "--name", name, "--pull", pull, "--entrypoint", "sleep"],
      ["--memory", memory, "--memory-swap", memory, "--cpus", String(limits.cpus)],
      ["--pids-limit", String(limits.processes), "--security-opt", "no-new-privileges", "--cap-drop", "ALL"],
      capabilities.flatMap((capability) => ["--cap-add", capability]),
      hasNetwork ? [] : ["--network", "none"],
      Object.entries(labels).flatMap(([label, value]) => ["--label", `${label}=${value}`]),
      variables(env),
      [image, "infinity"],
    ].flat();
    return (await this.#call(`start a container of ${image}`, args, signal, { limitMs: longTimeoutMs })).stdout.trim();
  }

  /** The end of the command as the engine reports it: a death by a signal is the code 128 and more. */
  async exec(id: string, command: ContainerExec, sink: OutputSink, signal: AbortSignal): Promise<CommandEnd> {
    const { argv, user, cwd, env = {}, stdin, kill } = command;
    const input = stdin === undefined ? [] : ["--interactive"];
    const args = ["exec", ...input, "--user", user, "--workdir", cwd, ...variables(env), id, ...argv];
    return execOnHost(
      {
        argv: this.#argv(args),
        ...this.#place,
        env: this.#env,
        timeoutMs: command.timeoutMs,
        kill,
        ...(stdin === undefined ? {} : { stdin }),
        ...(command.silentTimeoutMs === undefined ? {} : { silentTimeoutMs: command.silentTimeoutMs }),
      },
      sink,
      signal,
    );
  }

  /** Copies a file of the host into a container. */
  async copyFile(hostPath: string, id: string, path: string, signal: AbortSignal): Promise<void> {
    await this.#call(`copy ${hostPath} to ${path}`, ["cp", hostPath, `${id}:${path}`], signal, {
      limitMs: longTimeoutMs,
    });
  }

  /** Unpacks an archive into a directory of a container. Owners are those of the archive. */
  async copyArchive(
    archive: AsyncIterable<Uint8Array>,
    id: string,
    directory: string,
    signal: AbortSignal,
  ): Promise<void> {
    // Podman gives everything to the main user of the container unless it is asked not to; docker never does.
    const owners = this.program === "podman" ? ["--archive=false"] : [];
    const args = ["cp", ...owners, "-", `${id}:${directory}`];
    await this.#call(`copy to ${directory}`, args, signal, { limitMs: longTimeoutMs, stdin: archive });
  }

  /** What is at a path of a container, as an archive. */
  copyOut(id: string, path: string, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    return readProgram(this.#argv(["cp", `${id}:${path}`, "-"]), {
      signal,
      env: this.#env,
      failure: (words) => this.#failure(`copy ${path}`, words),
    });
  }

  /** Kills everything in a container at once. Its files stay. */
  async kill(id: string, signal: AbortSignal): Promise<void> {
    await this.#call(`stop container ${id}`, ["kill", id], signal);
  }

  /** Starts a container that was killed, on its files. */
  async start(id: string, signal: AbortSignal): Promise<void> {
    await this.#call(`start container ${id}`, ["start", id], signal);
  }

  /** Idempotent. */
  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#unlessMissing(this.#call(`remove container ${id}`, ["rm", "--force", "--volumes", id], signal));
  }

  /** Every container, also a stopped one, that has all of these labels. */
  async list(
    labels: Readonly<Record<string, string>>,
    signal: AbortSignal,
  ): Promise<{ id: string; labels: Record<string, string> }[]> {
    const filters = Object.entries(labels).flatMap(([name, value]) => ["--filter", `label=${name}=${value}`]);
    const args = ["ps", "--all", "--no-trunc", "--quiet", ...filters];
    const ids = (await this.#call("list containers", args, signal)).stdout.split("\n").filter((id) => id !== "");
    const found = await Promise.all(
      ids.map(async (id) => {
        const inspecting = this.#call("inspect a container", inspect(id, "{{json .Config.Labels}}"), signal);
        const text = await this.#unlessMissing(inspecting);
        return text === undefined ? [] : [{ id, labels: JSON.parse(text.stdout) as Record<string, string> }];
      }),
    );
    return found.flat();
  }

  /** `undefined`: there is no such container. */
  async inspect(id: string, signal: AbortSignal): Promise<ContainerState | undefined> {
    const format = "{{.State.Running}} {{.State.OOMKilled}}";
    const result = await this.#unlessMissing(this.#call(`inspect container ${id}`, inspect(id, format), signal));
    if (result === undefined) return undefined;
    const [isRunning, isOutOfMemory] = result.stdout.trim().split(" ");
    return { isRunning: isRunning === "true", isOutOfMemory: isOutOfMemory === "true" };
  }

  /** Makes an image of the files of a container, which goes on. */
  async commit(id: string, image: string, signal: AbortSignal): Promise<void> {
    await this.#call(`save container ${id}`, ["commit", id, image], signal, { limitMs: longTimeoutMs });
  }

  async pull(image: string, signal: AbortSignal): Promise<void> {
    await this.#call(`fetch the image ${image}`, ["pull", "--quiet", image], signal, { limitMs: longTimeoutMs });
  }

  /** `undefined`: this machine has no such image. */
  async inspectImage(image: string, signal: AbortSignal): Promise<{ id: string; createdAtMs: number } | undefined> {
    const args = ["image", "inspect", "--format", "{{.Id}} {{json .Created}}", image];
    const result = await this.#unlessMissing(this.#call(`inspect the image ${image}`, args, signal));
    if (result === undefined) return undefined;
    const [id = "", created = ""] = result.stdout.trim().split(" ");
    return { id: id.replace(/^sha256:/, ""), createdAtMs: Date.parse(JSON.parse(created) as string) };
  }

  /** The bytes of the topmost layer of an image. */
  async sizeOfTopLayer(image: string, signal: AbortSignal): Promise<number> {
    const args = ["history", "--human=false", "--format", "{{.Size}}", image];
    const { stdout } = await this.#call(`measure the image ${image}`, args, signal);
    return Number.parseInt(stdout, 10) || 0;
  }

  async listTags(repository: string, signal: AbortSignal): Promise<string[]> {
    const args = ["images", "--filter", `reference=${repository}`, "--format", "{{.Tag}}"];
    const { stdout } = await this.#call("list images", args, signal);
    return stdout.split("\n").filter((tag) => tag !== "" && tag !== "<none>");
  }

  /** Idempotent. */
  async removeImage(image: string, signal: AbortSignal): Promise<void> {
    await this.#unlessMissing(this.#call(`remove the image ${image}`, ["image", "rm", image], signal));
  }

  /** An error of the program in the words of the runner. */
  #failure(what: string, stderr: string, end?: CommandEnd): SandboxError {
    const words = stderr.trim().replace(/^Error( response from daemon)?: /i, "");
    const code = codeOf(words, end);
    const because = words === "" ? `${this.program} has failed` : (words.split("\n").at(-1) ?? "");
    return new SandboxError(code, `Cannot ${what}: ${because}`, { suggestion: suggestions(this.program)[code] ?? "" });
  }

  #argv(args: readonly string[]): string[] {
    return [this.program, ...this.#globalArgs, ...args];
  }

  async #call(
    what: string,
    args: readonly string[],
    signal: AbortSignal,
    { limitMs = timeoutMs, stdin }: { limitMs?: number; stdin?: AsyncIterable<Uint8Array> } = {},
  ): Promise<HostCommandResult> {
    const input = stdin === undefined ? {} : { stdin };
    const command = { argv: this.#argv(args), ...this.#place, env: this.#env, timeoutMs: limitMs, ...input };
    const result = await runCommand(command, signal);
    if (succeeded(result.end)) return result;
    const lost = result.end.kind === "lost" ? result.end.reason : result.stderr;
    throw this.#failure(what, lost, result.end);
  }

  async #unlessMissing<Value>(work: Promise<Value>): Promise<Value | undefined> {
    try {
      return await work;
    } catch (error) {
      if (error instanceof SandboxError && error.code === "not_found") return undefined;
      throw error;
    }
  }
}

function inspect(id: string, format: string): string[] {
  return ["container", "inspect", "--format", format, id];
}

function variables(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).flatMap(([name, value]) => ["--env", `${name}=${value}`]);
}

function codeOf(words: string, end: CommandEnd | undefined): ErrorCode {
  if (end?.kind === "timeout") return "timed_out";
  if (end?.kind === "lost") return "unsupported";
  if (/cannot connect|is the docker daemon running|connection refused/i.test(words)) return "unavailable";
  if (/no such|could not find|could not be found|not found|does not exist|image not known/i.test(words))
    return "not_found";
  if (/already in use|conflict/i.test(words)) return "already_exists";
  if (/no space left/i.test(words)) return "no_space";
  return "start_failed";
}

const suggestions = (program: string): Partial<Record<ErrorCode, string>> => ({
  timed_out: `See whether ${program} answers at all: "${program} ps".`,
  unsupported: `Install ${program}, or use the client atoll.`,
  unavailable: `Start the daemon of ${program}, or use the client atoll.`,
  not_found: `See "${program} images" and "${program} ps --all" for what there is.`,
  no_space: `Remove what is not needed: "${program} system df" says what takes space.`,
});
