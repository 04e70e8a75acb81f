import { createHash } from "node:crypto";

/** JSON in which equal values are equal text: members of objects are sorted, absent ones are left out. */
function stableJson(value: unknown): string {
  return JSON.stringify(value, (_key, member: unknown) =>
    typeof member === "object" && member !== null && !Array.isArray(member)
      ? Object.fromEntries(Object.entries(member).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : member,
  );
}

/** What identifies everything that `parts` has: 40 hexadecimal digits. */
export const keyOf = (parts: object): string =>
  createHash("sha256").update(stableJson(parts)).digest("hex").slice(0, 40);
