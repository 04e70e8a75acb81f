import { AsyncLocalStorage } from "node:async_hooks";

const owners = new AsyncLocalStorage<string>();

/**
 * Makes sandboxes for somebody: they are told of what happens to those from the first moment on, when nobody has them
 * yet.
 */
export function actingFor<T>(owner: string, make: () => Promise<T>): Promise<T> {
  return owners.run(owner, make);
}

export function ownerToBe(): string | undefined {
  return owners.getStore();
}
