import type { CreateKeyInput, KeyCreated, KeyInfo } from "@atoll/protocol";
import type { Http } from "./http/http.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** The API keys of the server: `atoll.keys`. For keys that have the verb `admin`. */
export class Keys {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Makes a key. Its secret is returned only here. `policy` limits what the key's sandboxes may be given: drivers,
   * egress, limits and their number.
   *
   * @example
   * const limits = { memoryBytes: 512 * 1024 ** 2, sandboxes: 3 };
   * const { key, secret } = await atoll.keys.create({ name: "ci", verbs: ["sandboxes", "read"], policy: { limits } });
   * console.log(key.name, key.policy.drivers?.join(), secret.length > 16); // ci gvisor true
   */
  async create(key: CreateKeyInput, options: SignalOption = {}): Promise<KeyCreated> {
    return this.#http.call("createKey", { body: key, ...options });
  }

  /**
   * Lists all keys, without their secrets.
   *
   * @example
   * await atoll.keys.create({ name: "listed" });
   * console.log((await atoll.keys.list()).some(({ name }) => name === "listed")); // true
   */
  async list(options: SignalOption = {}): Promise<KeyInfo[]> {
    return (await this.#http.call("listKeys", options)).keys;
  }

  /**
   * Revokes a key; it stops working at once.
   *
   * @example
   * const { key } = await atoll.keys.create({ name: "short-lived" });
   * await atoll.keys.revoke(key.id);
   */
  async revoke(keyId: string, options: SignalOption = {}): Promise<void> {
    await this.#http.call("revokeKey", { params: { keyId }, ...options });
  }
}
