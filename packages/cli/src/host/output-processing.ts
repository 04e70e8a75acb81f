import { spawnSync } from "node:child_process";

/**
 * Stops the terminal from turning a line feed into two characters. Node's raw mode does not do this, and without it a
 * program in the sandbox that moves its cursor with line feeds is drawn wrongly. Leaving raw mode undoes this too.
 * Without a `stty` nothing changes.
 */
export function endOutputProcessing(): void {
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}
