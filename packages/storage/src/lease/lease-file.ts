import { randomBytes } from "node:crypto";
import type { ObjectStore, ObjectVersion } from "../object-store.ts";
import { boundedCall, type CallBounds } from "./bounded-call.ts";
import type { Clock } from "./clock.ts";
import { encodeLeaseDocument, parseLeaseDocument, type LeaseDocument } from "./lease-document.ts";

/** A lease as it was when it was read: its document, and the version that the store gave it. */
export interface LeaseSight {
  document: LeaseDocument;
  version: ObjectVersion;
}

export interface LeaseFileOptions {
  store: ObjectStore;
  key: string;
  clock: Clock;
  /** The time after which a call counts as unanswered, whether or not the store gives up by itself. */
  callMs: number;
}

export function newToken(): string {
  return randomBytes(12).toString("base64url");
}

/**
 * The document of one lease in its store. Every call ends in bounded time; a write that rejects may have happened or
 * may still happen.
 */
export class LeaseFile {
  readonly key: string;
  readonly #options: LeaseFileOptions;

  constructor(options: LeaseFileOptions) {
    this.key = options.key;
    this.#options = options;
  }

  read(signal?: AbortSignal, limitMs?: number): Promise<LeaseSight | undefined> {
    const { store } = this.#options;
    return boundedCall(this.#bounds(signal, limitMs), async (stop) => {
      const found = await store.get(this.key, { signal: stop });
      if (found === undefined) return undefined;
      return { document: parseLeaseDocument(found.data, this.key), version: found.info.version };
    });
  }

  /** Writes only in place of `version`, or only if there is no document. */
  write(
    document: Omit<LeaseDocument, "version" | "write">,
    instead: "absent" | ObjectVersion,
    signal?: AbortSignal,
  ): Promise<LeaseSight> {
    const { store } = this.#options;
    const complete: LeaseDocument = { ...document, version: 1, write: newToken() };
    return boundedCall(this.#bounds(signal), async (stop) => {
      const info = await store.put(this.key, encodeLeaseDocument(complete), { if: instead, signal: stop });
      return { document: complete, version: info.version };
    });
  }

  #bounds(signal: AbortSignal | undefined, limitMs = Infinity): CallBounds {
    const { clock, callMs, store } = this.#options;
    return { clock, limitMs: Math.min(callMs, limitMs), signal, place: store.place, key: this.key };
  }
}
