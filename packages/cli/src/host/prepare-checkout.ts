import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** What makes a fresh clone ready. An installation has none. */
const setupProgram = fileURLToPath(new URL("../../../../tools/setup.mjs", import.meta.url));

/**
 * Makes the checkout ready to run a server: a guest program of older sources would not start. What cannot be done is
 * printed to stderr, and the server says what it lacks.
 */
export async function prepareCheckout(signal: AbortSignal): Promise<void> {
  if (!existsSync(setupProgram)) return;
  const child = spawn(process.execPath, [setupProgram, "--quiet"], { stdio: ["ignore", 2, 2], signal });
  await once(child, "exit");
}
