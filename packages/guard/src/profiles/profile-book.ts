import { builtInProfiles, SandboxError, SecurityProfile, standardProfile, type CustomProfile } from "@atoll/protocol";

/** The profiles of one server: the built-in ones, and those of its configuration, which win. */
export class ProfileBook {
  readonly #profiles: ReadonlyMap<string, SecurityProfile>;

  constructor(custom: Readonly<Record<string, CustomProfile>> = {}) {
    if (standardProfile in custom) {
      throw new SandboxError("invalid_argument", `Cannot use the profile ${standardProfile}: the name is taken`, {
        suggestion: "Name it otherwise, and make it the default with the setting policy.",
      });
    }
    const own = Object.entries(custom).map(([name, profile]) => SecurityProfile.parse({ name, ...profile }));
    this.#profiles = new Map([...builtInProfiles, ...own].map((profile) => [profile.name, profile]));
  }

  /** Returns the profile of this name, and throws `invalid_argument` if there is none. */
  get(name: string): SecurityProfile {
    const profile = this.#profiles.get(name);
    if (profile !== undefined) return profile;
    throw new SandboxError("invalid_argument", `Cannot use the profile ${name}: there is no such profile here`, {
      suggestion: `There are ${[...this.#profiles.keys()].join(", ")}; the setting profiles adds others.`,
      details: { profile: name, profiles: [...this.#profiles.keys()] },
    });
  }

  all(): SecurityProfile[] {
    return [...this.#profiles.values()];
  }
}
