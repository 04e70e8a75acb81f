import { firstToAbort, SandboxError } from "@atoll/protocol";
import { z } from "zod";
import type { CallOptions, ObjectStore, ObjectVersion } from "../object-store.ts";
import { boundedCall, type CallBounds } from "./bounded-call.ts";
import { systemClock, type Clock } from "./clock.ts";
import { newToken } from "./lease-file.ts";
import { leaseLost } from "./lease-lost.ts";
import type { Fence } from "./lease.ts";

/** How often a write is tried whose answer was lost, or that found another version than expected. */
const maxAttempts = 4;

const Envelope = z.strictObject({
  /** The epoch of the lease under which this was written. */
  epoch: z.int().min(1),
  /**
   * It is new with every write: it distinguishes our own write from others, and makes the bytes of every version
   * different.
   */
  write: z.string().max(64),
  content: z.unknown(),
});

export interface FencedObjectOptions<T> {
  store: ObjectStore;
  key: string;
  /** Throws for an invalid content, as every zod schema does. */
  schema: { parse(content: unknown): T };
  /** How long one call of the store may take before it counts as unanswered. 30 s if not given. */
  callMs?: number;
  clock?: Clock;
}

export interface FencedContent<T> {
  epoch: number;
  content: T;
}

interface Stored<T> extends FencedContent<T> {
  write: string;
  version: ObjectVersion;
}

/**
 * A small JSON object that only the owner of a lease writes. Each version carries the epoch of its writer and replaces
 * exactly the version before it, and no server replaces a version of a larger epoch: so a write of a former owner,
 * however late it arrives, never comes after a write of its successor.
 */
export class FencedObject<T> {
  readonly #options: FencedObjectOptions<T>;
  readonly #fence: Fence;
  #stored: Stored<T> | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(options: FencedObjectOptions<T>, fence: Fence) {
    this.#options = options;
    this.#fence = fence;
  }

  /** Reads the object, also without a lease. The content may be outdated when it arrives. */
  static async read<T>(options: FencedObjectOptions<T>, call: CallOptions = {}): Promise<FencedContent<T> | undefined> {
    const stored = await readStored(options, call);
    return stored === undefined ? undefined : { epoch: stored.epoch, content: stored.content };
  }

  /**
   * Must be the first call under a new lease. It puts the new epoch on the stored object, after which no former owner
   * can change the object any more. What was read before must not be relied on. An object that does not exist cannot be
   * claimed; its first write is refused if a former owner's comes first.
   */
  static async claim<T>(
    options: FencedObjectOptions<T>,
    fence: Fence,
    call: CallOptions = {},
  ): Promise<FencedObject<T>> {
    const object = new FencedObject(options, fence);
    await object.#claim(call);
    return object;
  }

  /** The content that was last claimed or written. */
  get content(): T | undefined {
    return this.#stored?.content;
  }

  /** Replaces the content, whatever is stored. See `update`. */
  write(content: T, call: CallOptions = {}): Promise<void> {
    return this.update(() => content, call);
  }

  /**
   * Replaces the content with what `change` makes of the one stored at that time. Rejects with `lease_lost` when this
   * server may not write any more. Writes happen one at a time and in order, each on the result of the one before. A
   * write whose answer was lost is repeated: `change` must give the same when it is applied twice.
   */
  update(change: (stored: T | undefined) => T, call: CallOptions = {}): Promise<void> {
    const turn = this.#turn.then(() => this.#write(change, call));
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  async #claim(call: CallOptions): Promise<void> {
    let failure: unknown;
    for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
      this.#stored = await this.#read(call);
      if (this.#stored === undefined || this.#stored.epoch === this.#fence.epoch) return;
      try {
        return await this.#replace(this.#stored.version, this.#stored.content, newToken(), call);
      } catch (error) {
        // Either the last write of a former owner came first, or our answer was lost: the stored version is claimed
        // next.
        failure = error;
        call.signal?.throwIfAborted();
      }
    }
    throw failure;
  }

  async #write(change: (stored: T | undefined) => T, call: CallOptions): Promise<void> {
    let failure: unknown;
    for (let attempt = 0; attempt < maxAttempts; attempt += 1) {
      const write = newToken();
      try {
        return await this.#replace(this.#stored?.version ?? "absent", change(this.#stored?.content), write, call);
      } catch (error) {
        failure = error;
      }
      call.signal?.throwIfAborted();
      const found = await this.#read(call);
      this.#assertSame(found);
      this.#stored = found;
      if (found?.write === write) return;
    }
    throw failure;
  }

  /** Refuses to overwrite an object that another program has changed or removed in between. */
  #assertSame(found: Stored<T> | undefined): void {
    const { key } = this.#options;
    if (this.#stored !== undefined && found === undefined) {
      throw new SandboxError("not_found", `Cannot write ${key}: it was removed`, { details: { key } });
    }
    if (this.#stored === undefined && found !== undefined && found.epoch < this.#fence.epoch) {
      throw new SandboxError("conflict", `Cannot create ${key}: a former owner of the lease has done so`, {
        suggestion: "Claim it again.",
        details: { key, epoch: found.epoch },
      });
    }
  }

  async #replace(instead: "absent" | ObjectVersion, content: T, write: string, call: CallOptions): Promise<void> {
    const { store, key } = this.#options;
    const { epoch } = this.#fence;
    const data = Buffer.from(`${JSON.stringify({ epoch, write, content }, undefined, 2)}\n`);
    this.#fence.assertCurrent();
    using stop = firstToAbort(this.#fence.signal, call.signal);
    const { version } = await boundedCall(boundsOf(this.#options, stop), (signal) =>
      store.put(key, data, { if: instead, signal }),
    );
    this.#stored = { epoch, write, content, version };
  }

  async #read(call: CallOptions): Promise<Stored<T> | undefined> {
    this.#fence.assertCurrent();
    using signal = firstToAbort(this.#fence.signal, call.signal);
    const stored = await readStored(this.#options, { signal });
    if (stored === undefined || stored.epoch <= this.#fence.epoch) return stored;
    const { key } = this.#options;
    throw leaseLost(key, this.#fence.epoch, { reason: "stolen", epoch: stored.epoch, owner: undefined });
  }
}

async function readStored<T>(options: FencedObjectOptions<T>, call: CallOptions): Promise<Stored<T> | undefined> {
  const { store, key, schema } = options;
  const found = await boundedCall(boundsOf(options, call.signal), (signal) => store.get(key, { signal }));
  if (found === undefined) return undefined;
  try {
    const { epoch, write, content } = Envelope.parse(JSON.parse(found.data.toString("utf8")));
    return { epoch, write, content: schema.parse(content), version: found.info.version };
  } catch (cause) {
    throw new SandboxError("storage_failed", `Cannot read ${key}: it has another format than this version writes`, {
      suggestion: "Check whether a newer server uses the same store.",
      details: { key },
      cause,
    });
  }
}

function boundsOf<T>(options: FencedObjectOptions<T>, signal: AbortSignal | undefined): CallBounds {
  const { store, key, clock = systemClock, callMs = 30_000 } = options;
  return { clock, limitMs: callMs, signal, place: store.place, key };
}
