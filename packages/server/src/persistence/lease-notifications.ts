import { deadlineAfter, serverProofHeader, type SandboxId, type ServerRef } from "@atoll/protocol";
import type { SharedSecret } from "./shared-secret.ts";

const patienceMs = 2_000;
/** Sooner than this after the last one nothing can have changed that the last one did not find. */
const replaceDelayMs = 100;
const mostRemembered = 1_000;

/**
 * Tells another server that it may want to look at a sandbox's lease. Nobody relies on it: without it, it looks a
 * little later.
 */
export type SendNudge = (to: Pick<ServerRef, "url">, id: SandboxId) => void;

/** Without a secret there is no store that servers could share, and nobody to notify. */
export function nudgeSender(secret: SharedSecret | undefined): SendNudge {
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
    signal: deadlineAfter(patienceMs),
  });
  if (answer.status === 403) secret.forget();
  await answer.body?.cancel();
}

/** What notifications make this server do is bounded: once per sandbox and moment, the last one never lost. */
export class LeaseNotifications {
  readonly #onNotify: (id: SandboxId) => void;
  /** Whether another one has come since. */
  readonly #resting = new Map<SandboxId, boolean>();

  constructor(onNotify: (id: SandboxId) => void) {
    this.#onNotify = onNotify;
  }

  take(id: SandboxId): void {
    if (this.#resting.has(id)) {
      this.#resting.set(id, true);
      return;
    }
    if (this.#resting.size >= mostRemembered) return;
    this.#resting.set(id, false);
    setTimeout(() => {
      const isWaiting = this.#resting.get(id) === true;
      this.#resting.delete(id);
      if (isWaiting) this.take(id);
    }, replaceDelayMs).unref();
    this.#onNotify(id);
  }
}
