import { hasErrno, noSpace } from "@atoll/host";
import { CreateRequest, firstToAbort, SandboxError, type CreateRequestInput, type SandboxId } from "@atoll/protocol";
import { filesOf, layerBytesOf } from "../checkpoints/launch-source.ts";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import type { StartOptions } from "../lifecycle/life-options.ts";
import { RecordKeeper } from "../lifecycle/record-keeper.ts";
import type { SandboxLife } from "../lifecycle/sandbox-life.ts";
import { Sandbox } from "../sandbox.ts";
import { withNodes } from "../snapshots/nodes-in-layers.ts";
import { restoreFilesFromArchive, type FilesSource } from "../snapshots/restore-files.ts";
import { parseRequest } from "../support/parse-request.ts";
import { newRecord } from "./new-record.ts";

export interface CreateOptions {
  signal?: AbortSignal;
  /** Answers each connection that a process inside wants to the outside. Without a handler none is allowed. */
  onEgress?: EgressHandler;
  /** Files to begin with, over the template. Rejects with `unrestorable` when they are damaged. */
  files?: FilesSource | undefined;
  /** The port of the proxy inside, through which programs reach the outside. */
  proxyPort?: number | undefined;
  /** The deadline as in `Sandbox.allowUntil`, in force from the first moment. */
  allowUntil?: number | undefined;
  /**
   * Stores in `ownerDir` what the caller keeps about the sandbox, while the sandbox starts. `create` waits for it and
   * fails with it; a crash before the sandbox runs removes what was stored.
   */
  alongside?: ((sandbox: { id: SandboxId; ownerDir: string }) => Promise<void>) | undefined;
}

/**
 * Creates a sandbox and waits until it runs. When it rejects, nothing is left: no process, mount, cgroup, directory or
 * record.
 */
export async function createSandbox(
  context: EngineContext,
  request: CreateRequestInput,
  options: CreateOptions = {},
): Promise<Sandbox> {
  const {
    driver: driverName,
    template: templateName,
    limits,
    labels,
  } = parseRequest(CreateRequest, request, "create a sandbox");
  options.signal?.throwIfAborted();
  const driver = context.driver(driverName);
  const template = await context.templates.get(templateName);
  // The record names the exact template: the sandbox must keep it if `host` is made again later.
  const record = newRecord({ driver: driverName, template: template.name, limits, labels });
  const keeper = new RecordKeeper(record, context.store, context.events.emit);
  const life = context.addLife(keeper, { driver, template, onEgress: options.onEgress });
  await life.deadline.set(options.allowUntil);
  const intent = keeper.begin();
  const stored = intent.then(
    () => true,
    () => false,
  );
  const { alongside, files, proxyPort, signal = new AbortController().signal } = options;
  const kept = intent.then(() => alongside?.({ id: record.id, ownerDir: life.parts.layout.ownerDir }));
  // The error is thrown where this is awaited; a start that fails first does not await it.
  kept.catch(() => undefined);
  try {
    await life.start(record.containerId, intent, {
      signal,
      proxyPort,
      ...(files === undefined ? {} : await beginWith(context, life, files, { intent, signal })),
    });
    await kept;
    return new Sandbox(life);
  } catch (error) {
    // A write that has not ended yet could make the files again after the removal.
    await kept.catch(() => undefined);
    if (!(await stored)) {
      context.lives.delete(record.id);
      await context.store.remove(record.id);
      throw explained(error);
    }
    await life.kill({ kind: "start", message: error instanceof Error ? error.message : String(error) });
    throw explained(error);
  }
}

async function beginWith(
  context: EngineContext,
  life: SandboxLife,
  files: FilesSource,
  { intent, signal }: { intent: Promise<void>; signal: AbortSignal },
): Promise<Pick<StartOptions, "from" | "layerBytes">> {
  await intent;
  const layers = await life.inTurn(async (killed) => {
    using stop = firstToAbort(signal, killed);
    return await restoreFilesFromArchive(context, life, files, stop);
  });
  const from = withNodes(context, life, filesOf(context, life, { layers }), signal);
  return { from, layerBytes: layerBytesOf({ layers }) };
}

/** A caller can do something about a full disk; all other errors stay as they are. */
function explained(error: unknown): unknown {
  if (!hasErrno(error, ...noSpace)) return error;
  return new SandboxError("no_space", "Cannot create a sandbox: the disk of the data directory is full", {
    suggestion: "Kill sandboxes that are not needed, or free disk space.",
    cause: error,
  });
}
