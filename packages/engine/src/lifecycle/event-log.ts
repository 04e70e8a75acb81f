import type { SandboxEventMessage } from "@atoll/protocol";

/** How many past events a late listener can still get. */
const keptEvents = 1024;

/** The events of all sandboxes of one engine, in order. A listener that throws does not stop the others. */
export class EventLog {
  #listeners = new Set<(event: SandboxEventMessage) => void>();
  #recent: SandboxEventMessage[] = [];

  emit = (event: SandboxEventMessage): void => {
    this.#recent.push(event);
    if (this.#recent.length > keptEvents) this.#recent.shift();
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        process.emitWarning(error instanceof Error ? error : String(error), { type: "AtollListenerError" });
      }
    }
  };

  /** Calls `listener` from now on. Returns a function that ends that. */
  listen(listener: (event: SandboxEventMessage) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get recent(): readonly SandboxEventMessage[] {
    return this.#recent;
  }
}
