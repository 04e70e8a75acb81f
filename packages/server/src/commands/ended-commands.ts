import type { Command } from "./command.ts";

type Ended = Pick<Command, "stored" | "isBeingRead" | "keptLogBytes">;

/**
 * The ended commands of one sandbox in the order in which they ended: one that ends now gives way last, however early
 * it was started.
 */
export class EndedCommands<C extends Ended = Command> {
  readonly #commands: C[] = [];

  /** It has ended just now. */
  add(command: C): void {
    this.#commands.push(command);
  }

  /** It ended under a server before this one. */
  restore(command: C): void {
    const after = this.#commands.findLastIndex((other) => endedAtMs(other) <= endedAtMs(command));
    this.#commands.splice(after + 1, 0, command);
  }

  clear(): void {
    this.#commands.length = 0;
  }

  /** Takes out the oldest beyond `kept`. One that somebody reads stays until it is looked for the next time. */
  takeSurplus(kept: number): C[] {
    const surplus = this.#commands.slice(0, Math.max(0, this.#commands.length - kept));
    const taken = surplus.filter(({ isBeingRead }) => !isBeingRead);
    for (const command of taken) this.#commands.splice(this.#commands.indexOf(command), 1);
    return taken;
  }

  /**
   * The oldest, without whose logs the others have no more than `keptBytes` together. Also those that somebody reads,
   * who is told what is missing: a reader must not fill the disk by being slow.
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
