import { readFile } from "node:fs/promises";
import type { ContainerRef } from "@atoll/protocol";
import { z } from "zod";
import type { SandboxLayout } from "../../store/layout.ts";

const StateFile = z.object({ status: z.string(), sandbox: z.object({ pid: z.int().min(1) }) });

/** What runsc has written down about a container: `sandbox.pid` is the process that is the sandbox's kernel. */
export async function readState(ref: ContainerRef, layout: SandboxLayout): Promise<z.infer<typeof StateFile>> {
  const path = `${layout.run(ref.id).runtimeState}/${ref.id}_sandbox:${ref.id}.state`;
  return StateFile.parse(JSON.parse(await readFile(path, "utf8")));
}
