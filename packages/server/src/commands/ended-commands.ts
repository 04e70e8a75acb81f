import type { Command } from "./command.ts";

type Ended = Pick<Command, "stored" | "isBeingRead" | "keptLogBytes">;

/**
 * The ended commands of one sandbox in the order in which they ended: a command that ends now is removed last, however
 * early it was started.
 */
export class EndedCommands<C extends Ended = Command> {
  readonly #commands: C[] = [];

  /** Adds a command that has ended just now. */
  add(command: C): void {
    this.#commands.push(command);
  }

  /** Adds a command that ended under an earlier server. */
  restore(command: C): void {
    const after = this.#commands.findLastIndex((other) => endedAtMs(other) <= endedAtMs(command));
    this.#commands.splice(after + 1, 0, command);
  }

  clear(): void {
    this.#commands.length = 0;
  }

  /** Removes and returns the oldest commands beyond `kept`. A command that a client reads stays until the next call. */
  takeSurplus(kept: number): C[] {
    const surplus = this.#commands.slice(0, Math.max(0, this.#commands.length - kept));
    const taken = surplus.filter(({ isBeingRead }) => !isBeingRead);
    for (const command of taken) this.#commands.splice(this.#commands.indexOf(command), 1);
    return taken;
  }

  /**
   * Returns the oldest commands whose logs have to be dropped so that the others have no more than `keptBytes`
   * together. They include commands that clients read, which then learn how much is missing: a slow reader must not
   * fill the disk.
   */
  withSurplusLogs(keptBytes: number): C[] {
    let bytes = this.#commands.reduce((sum, command) => sum + command.keptLogBytes, 0);
    return this.#commands.filter(({ keptLogBytes }) => {
      if (bytes <= keptBytes || keptLogBytes === 0) return false;
      bytes -= keptLogBytes;
      return true;
    });
  }
}

function endedAtMs({ stored }: Ended): number {
  return stored.state === "running" ? Number.POSITIVE_INFINITY : stored.endedAtMs;
}
