import { SandboxError } from "@atoll/protocol";

const shown = 5;

export interface PrefixSearch {
  /** The kind of the id, in the singular: "sandbox". */
  noun: string;
  prefix: string;
  ids: readonly string[];
  /** The command that lists them all. */
  listCommand: string;
}

/** Returns the one id that equals the prefix or begins with it. Throws if there is none or several. */
export function resolvePrefix({ noun, prefix, ids, listCommand }: PrefixSearch): string {
  if (ids.includes(prefix)) return prefix;
  const matches = ids.filter((id) => id.startsWith(prefix));
  const [only] = matches;
  if (only === undefined || prefix === "") {
    throw new SandboxError("not_found", `Cannot find a ${noun} ${JSON.stringify(prefix)}: no id begins with that`, {
      suggestion: `"${listCommand}" lists them.`,
    });
  }
  if (matches.length > 1) {
    const listed = matches.slice(0, shown).join(", ") + (matches.length > shown ? ", …" : "");
    throw new SandboxError(
      "invalid_argument",
      `Cannot choose a ${noun} for ${JSON.stringify(prefix)}: it may be ${listed}`,
      {
        suggestion: "Write more of the id.",
        details: { matches },
      },
    );
  }
  return only;
}
