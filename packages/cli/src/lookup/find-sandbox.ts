import { SandboxId, type SandboxInfo } from "@atoll/protocol";
import { Sandbox } from "@atoll/sdk";
import type { Cli } from "../cli.ts";
import { resolvePrefix } from "../input/resolve-prefix.ts";

/**
 * Finds a sandbox by its id or the beginning of it. A whole id needs no search: the request that uses it fails if there
 * is no such sandbox.
 */
export async function findSandbox(cli: Cli, idOrPrefix: string): Promise<Sandbox> {
  return new Sandbox(await cli.atoll(), await findSandboxId(cli, idOrPrefix));
}

export async function findSandboxId(cli: Cli, idOrPrefix: string): Promise<SandboxId> {
  const whole = SandboxId.safeParse(idOrPrefix);
  if (whole.success) return whole.data;
  const ids = (await cli.during("Looking for the sandbox", listSandboxes(cli))).map(({ id }) => id);
  return SandboxId.parse(resolvePrefix({ noun: "sandbox", prefix: idOrPrefix, ids, listCommand: "atoll ls" }));
}

interface Filter {
  state?: SandboxInfo["state"];
  labels?: Record<string, string>;
}

export async function listSandboxes(cli: Cli, filter: Filter = {}): Promise<SandboxInfo[]> {
  const atoll = await cli.atoll();
  const sandboxes: SandboxInfo[] = [];
  for await (const sandbox of atoll.sandboxes({ ...filter, signal: cli.signal })) sandboxes.push(sandbox);
  return sandboxes.toSorted((one, other) => one.createdAtMs - other.createdAtMs);
}
