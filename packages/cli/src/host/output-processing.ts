import { spawnSync } from "node:child_process";

/**
 * Node's raw mode leaves the terminal to turn a line feed into two characters, and a program inside that moves its
 * cursor with line feeds would be drawn askew. Leaving raw mode puts this back too. Without a `stty` it stays as it is.
 */
export function endOutputProcessing(): void {
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}
