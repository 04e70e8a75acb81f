import type { CreateOptions, EgressAnswer, EgressRequest, EgressHandler, Engine, Sandbox } from "@atoll/engine";
import type { SandboxId } from "@atoll/protocol";
import type { SandboxShape } from "./warm-pool.ts";

/**
 * The label that marks sandboxes of this server in the engine: one that was never handed out is removed at the next
 * start.
 */
export const serverLabel = "atoll.server";

export interface LauncherOptions {
  onEgress: ((sandboxId: SandboxId) => EgressHandler) | undefined;
  proxyPort: number | undefined;
}

export interface LaunchOptions {
  signal?: AbortSignal | undefined;
  alongside?: CreateOptions["alongside"];
  files?: CreateOptions["files"];
}

/** Starts a sandbox and what every sandbox has inside. When it rejects, nothing is left. */
export async function launchSandbox(
  engine: Engine,
  shape: SandboxShape,
  { onEgress, signal, ...options }: LauncherOptions & LaunchOptions,
): Promise<Sandbox> {
  const launched: { id?: SandboxId } = {};
  const sandbox = await engine.create(
    { ...shape, labels: { [serverLabel]: "1" } },
    {
      ...options,
      ...(signal === undefined ? {} : { signal }),
      onEgress: async (ask) =>
        (launched.id === undefined ? undefined : onEgress?.(launched.id)(ask)) ?? refuseEgress(ask),
    },
  );
  launched.id = sandbox.id;
  return sandbox;
}

export function refuseEgress({ host }: EgressRequest): EgressAnswer {
  return { verdict: "refused", reason: `no way out to ${host}` };
}
