import { SandboxError } from "@atoll/protocol";

const longestKeyBytes = 900;
const part = /^[A-Za-z0-9._=@+-]+$/;

/** Refuses a key that some store would read in its own way: the same set of names works in all of them. */
export function assertObjectKey(key: string): void {
  const sound = key.split("/").every((name) => part.test(name) && name !== "." && name !== "..");
  if (sound && key.length <= longestKeyBytes) return;
  throw new SandboxError(
    "invalid_argument",
    `Cannot use ${JSON.stringify(key.slice(0, 100))} as the key of an object`,
    {
      suggestion: "Use letters, digits and ._=@+- in parts that are separated by single slashes.",
    },
  );
}
