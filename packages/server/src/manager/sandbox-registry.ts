import { SandboxError, type SandboxId, type SandboxInfo, type SandboxPage } from "@atoll/protocol";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import { pageOf, type SandboxQuery } from "./sandbox-page.ts";

/** The registry: the sandboxes that this server has at this moment. */
export class SandboxRegistry {
  readonly #sandboxes = new Map<SandboxId, ManagedSandbox>();

  add(managed: ManagedSandbox): void {
    this.#sandboxes.set(managed.id, managed);
  }

  /** Returns false if the sandbox is not there, or another one has its id. */
  remove(managed: ManagedSandbox): boolean {
    const { id } = managed;
    if (this.#sandboxes.get(id) !== managed) return false;
    this.#sandboxes.delete(id);
    return true;
  }

  get(id: SandboxId): ManagedSandbox | undefined {
    return this.#sandboxes.get(id);
  }

  find(id: SandboxId): ManagedSandbox {
    const managed = this.#sandboxes.get(id);
    if (managed !== undefined) return managed;
    throw missingSandbox(id);
  }

  all(): ManagedSandbox[] {
    return [...this.#sandboxes.values()];
  }

  list(query: SandboxQuery, filter: (sandbox: SandboxInfo) => boolean): SandboxPage {
    return pageOf(
      this.all()
        .map((managed) => managed.info())
        .filter(filter),
      query,
    );
  }

  countOf(owner: string): number {
    return this.all().filter(({ facts }) => facts.owner === owner).length;
  }

  get size(): number {
    return this.#sandboxes.size;
  }
}

/** Returns the same error for a sandbox that never existed, one that is gone and one that the caller may not see. */
export function missingSandbox(id: SandboxId): SandboxError {
  return new SandboxError("not_found", `Cannot find sandbox ${id}`, {
    suggestion: "It never existed, or it was killed.",
    details: { sandboxId: id },
  });
}
