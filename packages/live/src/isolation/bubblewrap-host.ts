import { existsSync } from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { messageOf, run } from "@atoll/host";
import { cgroupEnforcement } from "./app-cgroup.ts";
import type { AppHost, AppProcess, LaunchOptions } from "./app-host.ts";
import { ChildApp } from "./child-app.ts";
import { scratchPrefix } from "./leftovers.ts";
import { nodeFlags } from "./node-flags.ts";
import { PortForwarder } from "./port-relay.ts";
import { hasSeccompFilter, seccompFilter } from "./seccomp.ts";

const probeTimeoutMs = 10_000;
/** The user that everything inside runs as. */
const insideId = "65534";
/** Where the app finds the directory that its ports are reached through. */
const portsDirectory = "/run/atoll";

/**
 * Runs an app in namespaces of its own: no network but loopback, no processes and files of the machine but the app's
 * folder, its packages and the system's programs, all read-only; a seccomp filter, and a cgroup.
 */
export class BubblewrapHost implements AppHost {
  readonly level = "bubblewrap";
  #missing: Promise<string[]> | undefined;

  missing(): Promise<string[]> {
    this.#missing ??= this.#probe();
    return this.#missing;
  }

  async enforcement(): Promise<string[]> {
    return ["no network, read-only files and system calls by bubblewrap and seccomp", ...(await cgroupEnforcement())];
  }

  async launch(options: LaunchOptions): Promise<AppProcess> {
    const scratch = await mkdtemp(scratchPrefix(process.pid));
    const ports = new PortForwarder(join(scratch, "ports.sock"));
    const removeScratch = async (): Promise<void> => {
      await ports[Symbol.asyncDispose]();
      await rm(scratch, { recursive: true, force: true });
    };
    await writeFile(join(scratch, "seccomp"), seccompFilter());
    await using filter = await open(join(scratch, "seccomp"), "r");
    try {
      // Inside another user has to make its socket here.
      await run("chmod", ["0777", scratch], { signal: options.signal, timeoutMs: probeTimeoutMs });
      const command = [
        ...bubblewrap(["--seccomp", "3", "--bind", scratch, portsDirectory, ...bindings(options)], options.env),
        process.execPath,
        ...nodeFlags(options.limits),
        options.runtime,
        options.folder,
        join(portsDirectory, "ports.sock"),
      ];
      const app = await ChildApp.start(
        command,
        { ...options, env: {} },
        { forward: (port) => ports.forward(port), extraFds: [filter.fd] },
      );
      void app.ended.then(removeScratch);
      return app;
    } catch (error) {
      await removeScratch();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Each app is ended by the manager that launched it.
  }

  async #probe(): Promise<string[]> {
    if (!hasSeccompFilter()) return [`a seccomp filter for ${process.arch}`];
    const [file, ...args] = [...bubblewrap([], {}), "/usr/bin/true"];
    try {
      const signal = new AbortController().signal;
      const { exitCode, stderr } = await run(file, args, { signal, timeoutMs: probeTimeoutMs });
      return exitCode === 0 ? [] : [`user namespaces that bubblewrap can use (it says: ${stderr.trim()})`];
    } catch (error) {
      return [`the program bwrap (install bubblewrap): ${messageOf(error)}`];
    }
  }
}

function bubblewrap(options: readonly string[], env: Readonly<Record<string, string>>): string[] {
  const systemLinks = ["bin", "sbin", "lib", "lib64"].flatMap((name) =>
    existsSync(`/usr/${name}`) ? ["--symlink", `usr/${name}`, `/${name}`] : [],
  );
  const view = "--ro-bind /usr /usr --proc /proc --dev /dev --tmpfs /tmp";
  return [
    ...`bwrap --unshare-all --die-with-parent --new-session --cap-drop ALL --hostname app ${view}`.split(" "),
    ...systemLinks,
    ...`--uid ${insideId} --gid ${insideId}`.split(" "),
    ...options,
    ..."--clearenv --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv HOME /tmp".split(" "),
    ...Object.entries(env).flatMap(([name, value]) => ["--setenv", name, value]),
    "--",
  ];
}

/** The files of the app: its folder, the runtime, Node, and the packages of the folders above it. */
function bindings({ folder, runtime }: LaunchOptions): string[] {
  const readOnly = [folder, runtime];
  if (!process.execPath.startsWith("/usr/")) readOnly.push(process.execPath);
  for (let above = dirname(folder); above !== dirname(above); above = dirname(above)) {
    const packages = join(above, "node_modules");
    if (existsSync(packages)) readOnly.push(packages);
  }
  return [...readOnly.flatMap((path) => ["--ro-bind", path, path]), "--chdir", folder];
}
