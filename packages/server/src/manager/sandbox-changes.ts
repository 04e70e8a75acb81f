import type { EgressPolicy, Isolated, SandboxId, SandboxInfo, SandboxTimeouts } from "@atoll/protocol";
import type { PersistentSandboxes } from "../persistence/persistent-sandboxes.ts";
import { assertSupported } from "./idle-clock.ts";
import type { ManagedSandbox } from "./managed-sandbox.ts";
import type { Requester } from "./sandbox-settings.ts";

export interface SandboxChangesOptions {
  find: (id: SandboxId) => ManagedSandbox;
  persistent: PersistentSandboxes;
}

/** Changes the settings of sandboxes without resuming them. */
export class SandboxChanges {
  readonly #options: SandboxChangesOptions;

  constructor(options: SandboxChangesOptions) {
    this.#options = options;
  }

  update(
    id: SandboxId,
    change: { timeouts?: SandboxTimeouts | undefined; labels?: Record<string, string> | undefined },
  ): Promise<SandboxInfo> {
    return this.#change(id, async (managed) => {
      if (change.timeouts !== undefined) assertSupported(change.timeouts, managed.sandbox.record.driver);
      await managed.update(change);
    });
  }

  hold(id: SandboxId, by: Requester & { holder: string }, ttlMs: number): Promise<SandboxInfo> {
    return this.#change(id, (managed) => managed.hold(by, ttlMs));
  }

  unhold(id: SandboxId, by: Requester): Promise<SandboxInfo> {
    return this.#change(id, (managed) => managed.unhold(by));
  }

  setIsolated(id: SandboxId, isolated: Isolated | undefined): Promise<SandboxInfo> {
    return this.#change(id, (managed) => managed.setIsolated(isolated));
  }

  /** Changes the policy and its ceiling. They apply to every connection from when this resolves. */
  async setEgress(id: SandboxId, policy: EgressPolicy, ceiling: EgressPolicy): Promise<EgressPolicy> {
    await this.#change(id, (managed) => managed.setEgress(policy, ceiling));
    return policy;
  }

  async setPortPublic(id: SandboxId, port: number, isPublic: boolean): Promise<void> {
    await this.#change(id, (managed) => managed.setPortPublic(port, isPublic));
  }

  async #change(id: SandboxId, edit: (managed: ManagedSandbox) => Promise<void>): Promise<SandboxInfo> {
    const { find, persistent } = this.#options;
    const work = async (): Promise<SandboxInfo> => {
      const managed = find(id);
      await edit(managed);
      return managed.info();
    };
    return find(id).facts.persistent ? persistent.inTurn(id, work) : work();
  }
}
