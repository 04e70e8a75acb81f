import type { ResolvedProfile } from "@atoll/protocol";
import type { Http } from "./http/http.ts";

interface SignalOption {
  signal?: AbortSignal | undefined;
}

/** The security profiles of the server: `atoll.profiles`. */
export class Profiles {
  readonly #http: Http;

  constructor(http: Http) {
    this.#http = http;
  }

  /**
   * Lists the profiles, and what each comes to on the server's machine for this key.
   *
   * @example
   * console.log((await atoll.profiles.list()).map(({ profile }) => profile.name).includes("high")); // true
   */
  async list(options: SignalOption = {}): Promise<ResolvedProfile[]> {
    return (await this.#http.call("listProfiles", options)).profiles;
  }

  /**
   * Describes one profile. It can be used if nothing is `missing`.
   *
   * @example
   * const { limits, egress } = await atoll.profiles.get("high");
   * console.log(limits.processes, egress.allow.length); // 50 0
   */
  async get(name: string, options: SignalOption = {}): Promise<ResolvedProfile> {
    return this.#http.call("getProfile", { params: { name }, ...options });
  }
}
