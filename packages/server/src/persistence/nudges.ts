import { deadlineAfter, type SandboxId, type ServerRef } from "@atoll/protocol";

const patienceMs = 2_000;
/** Sooner than this after the last one nothing can have changed that the last one did not find. */
const restMs = 100;
const mostRemembered = 1_000;

/** Tells another server that it may want to look at a sandbox's lease. Nobody relies on it: without it, it looks a little later. */
export function sendNudge({ url }: Pick<ServerRef, "url">, id: SandboxId): void {
  if (!/^https?:\/\//.test(url)) return;
  fetch(`${url}/leases/${id}/nudge`, {
    method: "POST",
    redirect: "error",
    signal: deadlineAfter(patienceMs),
  })
    .then((answer) => answer.body?.cancel())
    .catch(() => undefined);
}

/** Anybody may nudge. What it makes this server do is bounded: once per sandbox and moment, the last one never lost. */
export class NudgeBox {
  readonly #onNudge: (id: SandboxId) => void;
  /** Whether another one has come since. */
  readonly #resting = new Map<SandboxId, boolean>();

  constructor(onNudge: (id: SandboxId) => void) {
    this.#onNudge = onNudge;
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
    }, restMs).unref();
    this.#onNudge(id);
  }
}
