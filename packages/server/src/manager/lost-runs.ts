import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { usedOtherwise, type IdempotencyMark } from "../support/idempotent-calls.ts";

/** How long whoever lost the answer can learn that the run was lost. */
const keptMs = 24 * 3_600_000;

const fileName = /^([0-9a-f]{64})\.([0-9a-f]{64})$/;

/**
 * One-off runs whose server went before their result was fetched. Their sandboxes are gone, and with them what they
 * did: whoever asks for one again is told so, and nothing is run a second time. Each is an empty file, named after the
 * mark of its request.
 */
export class LostRuns {
  readonly #dir: string;
  /** Requests by key. */
  readonly #lost = new Map<string, string>();

  constructor(dir: string) {
    this.#dir = dir;
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(dir)) {
      const [, key, request] = fileName.exec(name) ?? [];
      const path = join(dir, name);
      const isOld = statSync(path).mtimeMs < Date.now() - keptMs;
      if (key === undefined || request === undefined || isOld) rmSync(path, { force: true });
      else this.#lost.set(key, request);
    }
  }

  /** Before its sandbox goes. Without a mark nobody can ask for it again. */
  async add(mark: IdempotencyMark | undefined): Promise<void> {
    if (mark === undefined) return;
    await writeDurably(this.#path(mark), "");
    this.#lost.set(mark.key, mark.request);
  }

  assertNotLost(mark: IdempotencyMark): void {
    const request = this.#lost.get(mark.key);
    if (request === undefined) return;
    if (request !== mark.request) throw usedOtherwise();
    throw new SandboxError("sandbox_ended", "Cannot give the result of this run: the server that ran it has stopped", {
      suggestion: "How far it came is not known. Use a new Idempotency-Key if it may run a second time.",
    });
  }

  /** Nobody asks for it any more. */
  async forget({ key }: Pick<IdempotencyMark, "key">): Promise<void> {
    const request = this.#lost.get(key);
    if (request === undefined) return;
    this.#lost.delete(key);
    await rm(this.#path({ key, request }), { force: true });
  }

  #path({ key, request }: IdempotencyMark): string {
    return join(this.#dir, `${key}.${request}`);
  }
}
