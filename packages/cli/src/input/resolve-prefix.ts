import { SandboxError } from "@atoll/protocol";

const shown = 5;

export interface PrefixSearch {
  /** What is looked for, in the singular: "sandbox". */
  noun: string;
  prefix: string;
  ids: readonly string[];
  /** What lists them all. */
  listCommand: string;
}

/** The one id that is, or begins with, the prefix. None and several are both told with what to do. */
export function resolvePrefix({ noun, prefix, ids, listCommand }: PrefixSearch): string {
  if (ids.includes(prefix)) return prefix;
  const matches = ids.filter((id) => id.startsWith(prefix));
  const [only] = matches;
  if (only === undefined || prefix === "") {
    throw new SandboxError("not_found", `Cannot find a ${noun} ${JSON.stringify(prefix)}: no id begins so`, {
      suggestion: `"${listCommand}" lists them.`,
    });
  }
  if (matches.length > 1) {
    const listed = matches.slice(0, shown).join(", ") + (matches.length > shown ? ", …" : "");
    throw new SandboxError("invalid_argument", `Cannot tell which ${noun} ${JSON.stringify(prefix)} is: ${listed}`, {
      suggestion: "Write more of the id.",
      details: { matches },
    });
  }
  return only;
}
