import { isSandboxError } from "@atoll/protocol";
import type { Instance, SandboxConfig } from "@atoll/runner";
import { UsageError } from "../input/usage-error.ts";
import type { ClientName, RunnerOptions } from "./runner-options.ts";

/** Reads what the user wrote. What is wrong with it is a mistake of the command line, and no failure of ours. */
export async function readInput<Value>(read: () => Promise<Value>): Promise<Value> {
  try {
    return await read();
  } catch (error) {
    if (isSandboxError(error, "invalid_argument") || isSandboxError(error, "not_found")) {
      throw new UsageError(error.message, error.suggestion);
    }
    throw error;
  }
}

/** Returns the instance with what the command line says instead of it. */
export function withOptions(instance: Instance, options: RunnerOptions): Instance {
  const { client, image, template, timeout } = options;
  const { sandbox } = instance.task;
  const changed: SandboxConfig = {
    ...sandbox,
    ...(client === undefined ? {} : { client: client === "atoll" ? "atoll" : "docker" }),
    ...(image === undefined ? {} : { image }),
    ...(template === undefined ? {} : { template }),
    ...(timeout === undefined ? {} : { testTimeoutMs: timeout }),
  };
  return { ...instance, task: { ...instance.task, sandbox: changed } };
}

/** Returns where the instances run: one place for all of them. */
export function clientOf(instances: readonly Instance[], options: RunnerOptions): ClientName {
  if (options.client !== undefined) return options.client;
  const named = new Set(instances.map(({ task }) => task.sandbox.client));
  const [first = "atoll"] = named;
  if (named.size > 1) {
    throw new UsageError("Cannot run these together: they name different clients", "Choose one with --client.");
  }
  return first;
}
