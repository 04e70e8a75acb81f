import { readFile } from "node:fs/promises";
import { pollUntil } from "@atoll/host";
import type { ContainerRef } from "@atoll/protocol";
import { z } from "zod";
import type { SandboxLayout } from "../../store/layout.ts";

const StateFile = z.object({ status: z.string(), sandbox: z.object({ pid: z.int().min(1) }) });

/**
 * How long runsc may take to write its state file. It writes in place, so for a moment the file is empty or incomplete.
 */
const writeTimeoutMs = 2_000;

/** Reads runsc's state file of a container: `sandbox.pid` is the process that is the sandbox's kernel. */
export async function readState(ref: ContainerRef, layout: SandboxLayout): Promise<z.infer<typeof StateFile>> {
  const path = `${layout.run(ref.id).runtimeState}/${ref.id}_sandbox:${ref.id}.state`;
  let document: unknown;
  let failure: unknown;
  const isWhole = await pollUntil(
    async () => {
      const text = await readFile(path, "utf8");
      try {
        document = JSON.parse(text);
        return true;
      } catch (error) {
        failure = error;
        return false;
      }
    },
    { deadlineMs: writeTimeoutMs },
  );
  if (!isWhole)
    throw new Error(`Cannot read the state of container ${ref.id}: ${path} is not JSON`, { cause: failure });
  return StateFile.parse(document);
}
