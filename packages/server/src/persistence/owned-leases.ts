import { SandboxError, type SandboxId } from "@atoll/protocol";
import { KeyedTurns } from "../support/turns.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";

/**
 * The persistent sandboxes that this server has the lease of. Whatever takes, moves or gives back one of them does so
 * in its turn.
 */
export class OwnedLeases {
  readonly #handles = new Map<SandboxId, SandboxHandle>();
  readonly #opened = new WeakSet<SandboxHandle>();
  readonly #turns = new KeyedTurns<SandboxId>();

  inTurn<T>(id: SandboxId, work: () => Promise<T>): Promise<T> {
    return this.#turns.take(id, work);
  }

  has(id: SandboxId): boolean {
    return this.#handles.get(id)?.isCurrent ?? false;
  }

  /** Whether requests may come to it. Until then those that do would find it without its commands. */
  isOpen(id: SandboxId): boolean {
    const handle = this.get(id);
    return handle !== undefined && this.#opened.has(handle);
  }

  /** All that belongs to it is here. */
  open(handle: SandboxHandle): void {
    this.#opened.add(handle);
  }

  /** Undefined: it is not ours, or not surely any more. */
  get(id: SandboxId): SandboxHandle | undefined {
    const handle = this.#handles.get(id);
    return handle?.isCurrent === true ? handle : undefined;
  }

  /** Rejects with `lease_lost` what must not be done without the lease. */
  find(id: SandboxId): SandboxHandle {
    const handle = this.get(id);
    if (handle !== undefined) return handle;
    throw new SandboxError("lease_lost", `Cannot go on with sandbox ${id}: this server does not have it now`, {
      suggestion: "Ask again: it is brought here if no other server has it.",
      details: { sandboxId: id },
    });
  }

  add(handle: SandboxHandle): void {
    this.#handles.set(handle.id, handle);
  }

  /** False: it was not there, or another one is by now. */
  remove(handle: SandboxHandle): boolean {
    return this.#handles.get(handle.id) === handle && this.#handles.delete(handle.id);
  }

  forgetLost(id: SandboxId): void {
    if (!this.has(id)) this.#handles.delete(id);
  }

  all(): SandboxHandle[] {
    return [...this.#handles.values()];
  }
}
