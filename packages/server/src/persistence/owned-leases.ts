import { SandboxError, type SandboxId } from "@atoll/protocol";
import { KeyedTurns } from "../support/turns.ts";
import type { SandboxHandle } from "./sandbox-handle.ts";

/**
 * The persistent sandboxes whose lease this server has, with a queue for each. Work that acquires, changes or releases
 * a sandbox runs in its queue.
 */
export class OwnedLeases {
  readonly #handles = new Map<SandboxId, SandboxHandle>();
  readonly #ready = new WeakSet<SandboxHandle>();
  readonly #turns = new KeyedTurns<SandboxId>();

  inTurn<T>(id: SandboxId, work: () => Promise<T>): Promise<T> {
    return this.#turns.take(id, work);
  }

  has(id: SandboxId): boolean {
    return this.#handles.get(id)?.isCurrent ?? false;
  }

  /** True when requests may use the sandbox. Before that, its commands are not restored. */
  isReady(id: SandboxId): boolean {
    const handle = this.get(id);
    return handle !== undefined && this.#ready.has(handle);
  }

  /** Marks the sandbox as ready, because all that belongs to it is here. */
  markReady(handle: SandboxHandle): void {
    this.#ready.add(handle);
  }

  /** Returns the handle, or undefined if the lease is not current. */
  get(id: SandboxId): SandboxHandle | undefined {
    const handle = this.#handles.get(id);
    return handle?.isCurrent === true ? handle : undefined;
  }

  /** Returns the handle, or throws `lease_lost`. It is for work that needs the lease. */
  find(id: SandboxId): SandboxHandle {
    const handle = this.get(id);
    if (handle !== undefined) return handle;
    throw new SandboxError("lease_lost", `Cannot go on with sandbox ${id}: this server does not have it now`, {
      suggestion: "Try again: it is acquired again if no other server has it.",
      details: { sandboxId: id },
    });
  }

  add(handle: SandboxHandle): void {
    this.#handles.set(handle.id, handle);
  }

  /** Returns false if the handle was not there, or another one replaced it. */
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
