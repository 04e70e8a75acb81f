import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/host";
import { SandboxError } from "@atoll/protocol";
import { keyReused, type IdempotencyMark } from "../support/idempotent-calls.ts";

/** How long a client that got no reply can learn that its run was lost. */
const keptMs = 24 * 3_600_000;

const fileName = /^([0-9a-f]{64})\.([0-9a-f]{64})$/;

/**
 * The one-off runs whose server stopped before their result was fetched. Their sandboxes are gone, and with them what
 * they did: a client that asks for such a run again gets an error, and nothing is run a second time. Each is an empty
 * file, named after the mark of its request.
 */
export class LostRuns {
  readonly #dir: string;
  /** The hashes of lost requests, by the hash of their key. */
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

  /** Records a lost run before its sandbox is removed. A run without a mark cannot be asked for again. */
  async add(mark: IdempotencyMark | undefined): Promise<void> {
    if (mark === undefined) return;
    await writeDurably(this.#path(mark), "");
    this.#lost.set(mark.key, mark.request);
  }

  assertNotLost(mark: IdempotencyMark): void {
    const request = this.#lost.get(mark.key);
    if (request === undefined) return;
    if (request !== mark.request) throw keyReused();
    throw new SandboxError("sandbox_ended", "Cannot give the result of this run: the server that ran it has stopped", {
      suggestion: "How far it came is not known. Use a new Idempotency-Key if it may run a second time.",
    });
  }

  /** Forgets a run, because its client no longer asks for it. */
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
