import { AsyncLocalStorage } from "node:async_hooks";

const owners = new AsyncLocalStorage<string>();

/**
 * Sets the owner of the sandboxes that `make` creates. Their owner gets events about them from the first moment on,
 * before they are registered.
 */
export function createForOwner<T>(owner: string, make: () => Promise<T>): Promise<T> {
  return owners.run(owner, make);
}

export function ownerOfNewSandbox(): string | undefined {
  return owners.getStore();
}
