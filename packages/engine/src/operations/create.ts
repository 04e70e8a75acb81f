import { CreateRequest, type CreateRequestInput, type SandboxRecord } from "@atoll/protocol";
import type { EngineContext } from "../engine-context.ts";
import type { EgressHandler } from "../guest/egress-relay.ts";
import { RecordKeeper } from "../lifecycle/record-keeper.ts";
import { Sandbox } from "../sandbox.ts";
import { newContainerId, newSandboxId } from "../support/ids.ts";
import { parseRequest } from "../support/parse-request.ts";

export interface CreateOptions {
  signal?: AbortSignal;
  /** Answers each connection that something inside wants to the outside. Without it none is allowed. */
  onEgress?: EgressHandler;
}

/** Creates a sandbox and waits until it runs. When it rejects, nothing is left: no process, mount, cgroup, directory or record. */
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
  const createdAtMs = Date.now();
  const containerId = newContainerId();
  const record: SandboxRecord & { state: "creating" } = {
    version: 1,
    id: newSandboxId(),
    driver: driverName,
    // The exact one: a template that is made anew meanwhile must not change under the sandbox.
    template: template.name,
    limits,
    createdAtMs,
    ...(limits.lifetimeMs === undefined ? {} : { expiresAtMs: createdAtMs + limits.lifetimeMs }),
    labels,
    state: "creating",
    containerId,
  };
  const keeper = new RecordKeeper(record, context.store, context.events.tell);
  const life = context.addLife(keeper, { driver, template, onEgress: options.onEgress });
  const intent = keeper.begin();
  const stored = intent.then(
    () => true,
    () => false,
  );
  try {
    await life.start(containerId, intent, { signal: options.signal ?? new AbortController().signal });
    return new Sandbox(life);
  } catch (error) {
    if (!(await stored)) {
      context.lives.delete(record.id);
      await context.store.remove(record.id);
      throw error;
    }
    await life.kill({ kind: "start", message: error instanceof Error ? error.message : String(error) });
    throw error;
  }
}
