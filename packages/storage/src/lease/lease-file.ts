import { randomBytes } from "node:crypto";
import { SandboxError } from "@atoll/protocol";
import type { ObjectStore, ObjectVersion } from "../object-store.ts";
import type { Clock } from "./clock.ts";
import { encodeLeaseDocument, parseLeaseDocument, type LeaseDocument } from "./lease-document.ts";

/** A lease as it was at some moment: what stood in it, and what its store called that. */
export interface LeaseSight {
  document: LeaseDocument;
  version: ObjectVersion;
}

export interface LeaseFileOptions {
  store: ObjectStore;
  key: string;
  clock: Clock;
  /** After so long a call counts as unanswered, whether or not the store gives up by itself. */
  callMs: number;
}

export function newToken(): string {
  return randomBytes(12).toString("base64url");
}

/** The document of one lease in its store. Every call ends in bounded time; a write that rejects may have happened or may still happen. */
export class LeaseFile {
  readonly key: string;
  readonly #options: LeaseFileOptions;

  constructor(options: LeaseFileOptions) {
    this.key = options.key;
    this.#options = options;
  }

  read(signal?: AbortSignal): Promise<LeaseSight | undefined> {
    const { store } = this.#options;
    return this.#bound(signal, async (stop) => {
      const found = await store.get(this.key, { signal: stop });
      if (found === undefined) return undefined;
      return { document: parseLeaseDocument(found.data, this.key), version: found.info.version };
    });
  }

  /** Only in place of the version given, or where none is. */
  write(
    document: Omit<LeaseDocument, "version" | "write">,
    instead: "absent" | ObjectVersion,
    signal?: AbortSignal,
  ): Promise<LeaseSight> {
    const { store } = this.#options;
    const complete: LeaseDocument = { ...document, version: 1, write: newToken() };
    return this.#bound(signal, async (stop) => {
      const info = await store.put(this.key, encodeLeaseDocument(complete), { if: instead, signal: stop });
      return { document: complete, version: info.version };
    });
  }

  /** The promise settles in time even if the call ignores that it was told to stop. */
  #bound<T>(signal: AbortSignal | undefined, call: (stop: AbortSignal) => Promise<T>): Promise<T> {
    const { clock, callMs, store } = this.#options;
    const controller = new AbortController();
    return new Promise<T>((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const give = (reason: unknown): void => {
        controller.abort(reason);
        reject(reason);
      };
      const abort = (): void => give(signal?.reason);
      const cancel = clock.after(callMs, () =>
        give(
          new SandboxError("unavailable", `Cannot reach the lease ${this.key}: ${store.place} does not answer`, {
            details: { key: this.key, callMs },
          }),
        ),
      );
      signal?.addEventListener("abort", abort, { once: true });
      call(controller.signal)
        .then(resolve, reject)
        .finally(() => {
          cancel();
          signal?.removeEventListener("abort", abort);
        });
    });
  }
}
