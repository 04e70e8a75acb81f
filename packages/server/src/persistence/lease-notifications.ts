import { deadlineAfter, serverProofHeader, type SandboxId, type ServerRef } from "@atoll/protocol";
import type { SharedSecret } from "./shared-secret.ts";

const timeoutMs = 2_000;
/** The shortest time between two looks at a lease: nothing relevant changes sooner. */
const minIntervalMs = 100;
const mostRemembered = 1_000;

/**
 * Notifies another server that a sandbox's lease may have changed. Nothing depends on it: without it, that server looks
 * a little later.
 */
export type NotifyServer = (to: Pick<ServerRef, "url">, id: SandboxId) => void;

/** Returns a function that notifies servers. Without a secret there is no shared store, and so no server to notify. */
export function createServerNotifier(secret: SharedSecret | undefined): NotifyServer {
  return ({ url }, id) => {
    if (secret === undefined || !/^https?:\/\//.test(url)) return;
    post(secret, url, `/leases/${id}/notify`).catch(() => undefined);
  };
}

async function post(secret: SharedSecret, url: string, path: string): Promise<void> {
  const answer = await fetch(`${url}${path}`, {
    method: "POST",
    headers: { [serverProofHeader]: await secret.prove("POST", path) },
    redirect: "error",
    signal: deadlineAfter(timeoutMs),
  });
  if (answer.status === 403) secret.forget();
  await answer.body?.cancel();
}

/**
 * Bounds what notifications make this server do: it looks at a lease at most once per interval, and always after the
 * last notification.
 */
export class LeaseNotifications {
  readonly #onNotify: (id: SandboxId) => void;
  /** The sandboxes in their interval, with whether another notification has come since. */
  readonly #inInterval = new Map<SandboxId, boolean>();

  constructor(onNotify: (id: SandboxId) => void) {
    this.#onNotify = onNotify;
  }

  take(id: SandboxId): void {
    if (this.#inInterval.has(id)) {
      this.#inInterval.set(id, true);
      return;
    }
    if (this.#inInterval.size >= mostRemembered) return;
    this.#inInterval.set(id, false);
    setTimeout(() => {
      const isWaiting = this.#inInterval.get(id) === true;
      this.#inInterval.delete(id);
      if (isWaiting) this.take(id);
    }, minIntervalMs).unref();
    this.#onNotify(id);
  }
}
