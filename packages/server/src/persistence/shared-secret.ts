import { hkdfSync, randomBytes } from "node:crypto";
import { isSandboxError, SandboxError } from "@atoll/protocol";
import type { ObjectStore } from "@atoll/storage";
import { z } from "zod";
import { isSameMac, mac } from "../signing/mac.ts";

const objectKey = "server-secret.json";
const StoredSecret = z.strictObject({ version: z.literal(1), secret: z.string().regex(/^[\w-]{43}$/) });

/**
 * The tolerated difference between the clocks of two servers, and the time for which an intercepted proof is of use.
 */
const clockToleranceMs = 5 * 60_000;
/** The time after which a secret that was removed or replaced in the store is no longer accepted. */
const freshMs = 5 * 60_000;
/** The shortest time between two reads of the store that wrong proofs can cause. */
const minReadIntervalMs = 10_000;

export interface SharedSecretOptions {
  nowMs?: () => number;
}

/**
 * Proves to a server that a request comes from another one with the same metadata store. The secret is in that store,
 * created by the first server that needs it, and never leaves it: a proof is an HMAC over the request and the time.
 * After the object is removed, all servers change to a new secret.
 */
export class SharedSecret {
  readonly #store: ObjectStore;
  readonly #nowMs: () => number;
  #known: { key: Buffer; readAtMs: number } | undefined;
  #reading: Promise<Buffer> | undefined;

  constructor(store: ObjectStore, { nowMs = Date.now }: SharedSecretOptions = {}) {
    this.#store = store;
    this.#nowMs = nowMs;
  }

  async prove(method: string, path: string): Promise<string> {
    const sentAtMs = String(this.#nowMs());
    return `${sentAtMs}.${mac(await this.#key(freshMs), [method, path, sentAtMs])}`;
  }

  async isProven(proof: string | undefined, method: string, path: string): Promise<boolean> {
    const [, sentAtMs, given] = /^(\d{1,15})\.([\w-]{43})$/.exec(proof ?? "") ?? [];
    if (sentAtMs === undefined || given === undefined) return false;
    if (Math.abs(this.#nowMs() - Number(sentAtMs)) > clockToleranceMs) return false;
    const fits = (key: Buffer): boolean => isSameMac(mac(key, [method, path, sentAtMs]), given);
    // The sender may have read a newer secret than this server has.
    return fits(await this.#key(freshMs)) || fits(await this.#key(minReadIntervalMs));
  }

  /** Makes the next use read the store, because another server has refused the secret of this one. */
  forget(): void {
    this.#known = undefined;
  }

  /** Returns the key of the secret, read at most `maxAgeMs` ago. */
  async #key(maxAgeMs: number): Promise<Buffer> {
    if (this.#known !== undefined && this.#nowMs() - this.#known.readAtMs < maxAgeMs) return this.#known.key;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async #read(): Promise<Buffer> {
    const readAtMs = this.#nowMs();
    const secret = (await this.#find()) ?? (await this.#create());
    const key = Buffer.from(hkdfSync("sha256", Buffer.from(secret, "base64url"), "", "atoll notifications", 32));
    this.#known = { key, readAtMs };
    return key;
  }

  async #find(): Promise<string | undefined> {
    const found = await this.#store.get(objectKey);
    if (found === undefined) return undefined;
    try {
      return StoredSecret.parse(JSON.parse(found.data.toString("utf8"))).secret;
    } catch (cause) {
      throw new SandboxError("storage_failed", `Cannot read ${objectKey} in ${this.#store.place}`, {
        suggestion: "Remove it: the servers create a new one.",
        details: { key: objectKey },
        cause,
      });
    }
  }

  async #create(): Promise<string> {
    const secret = randomBytes(32).toString("base64url");
    try {
      await this.#store.put(objectKey, Buffer.from(JSON.stringify({ version: 1, secret })), { if: "absent" });
      return secret;
    } catch (error) {
      // Another server was first, or this very write succeeded and its reply was lost.
      const found = await this.#find().catch(() => undefined);
      if (found === undefined || !isSandboxError(error)) throw error;
      return found;
    }
  }
}
