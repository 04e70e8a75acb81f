import type { SandboxClient } from "@atoll/runner";
import type { Cli } from "../cli.ts";
import { findServer } from "./find-server.ts";
import type { ClientName } from "./runner-options.ts";

/** Returns where sandboxes are started. `dispose` closes it, and leaves a private server. */
export async function openClient(cli: Cli, name: ClientName): Promise<{ client: SandboxClient } & AsyncDisposable> {
  const { AtollClient, DockerClient } = await import("@atoll/runner");
  if (name !== "atoll") {
    const client = new DockerClient({ program: name, env: cli.environment.containerVariables });
    return { client, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
  }
  const server = await findServer(cli);
  const client = new AtollClient({ atoll: server.atoll });
  return { client, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}
