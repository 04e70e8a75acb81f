import { cgroupEnforcement } from "./app-cgroup.ts";
import type { AppHost, AppProcess, LaunchOptions } from "./app-host.ts";
import { ChildApp } from "./child-app.ts";
import { nodeFlags } from "./node-flags.ts";

/** Runs an app as a child process with a clean environment. This level separates honest code; it is no wall. */
export class ProcessHost implements AppHost {
  readonly level = "process";

  async missing(): Promise<string[]> {
    return [];
  }

  enforcement(): Promise<string[]> {
    return cgroupEnforcement();
  }

  launch(options: LaunchOptions): Promise<AppProcess> {
    const command = [process.execPath, ...nodeFlags(options.limits), options.runtime, options.folder];
    return ChildApp.start(command, options, { forward: async (port) => ({ host: "127.0.0.1", port }) });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Each app is ended by the manager that launched it.
  }
}
