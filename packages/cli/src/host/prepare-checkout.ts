import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** What makes a fresh clone ready. An installation has none. */
const setupProgram = fileURLToPath(new URL("../../../../tools/setup.mjs", import.meta.url));

/** Makes the checkout ready to run a server. Resolves to whether it was done; stderr has what is missing. */
export async function prepareCheckout(signal: AbortSignal): Promise<boolean> {
  if (!existsSync(setupProgram)) return false;
  const child = spawn(process.execPath, [setupProgram, "--quiet"], { stdio: ["ignore", 2, 2], signal });
  const [exitCode] = (await once(child, "exit")) as [number | null];
  return exitCode === 0;
}
