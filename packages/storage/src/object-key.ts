import { SandboxError } from "@atoll/protocol";

const longestKeyBytes = 900;
/** Some stores keep the parts of a key as file names, with a few characters of their own. */
const longestPartBytes = 200;
const part = /^[A-Za-z0-9._=@+-]+$/;
const suggestion = "Use letters, digits and ._=@+- in parts that are separated by single slashes.";

/** Whether a name can be one part of a key. */
export const isKeyPart = (name: string): boolean =>
  part.test(name) && name.length <= longestPartBytes && name !== "." && name !== "..";

/** Whether an object can have this key. Other programs may have put anything into the same bucket or directory. */
export const isObjectKey = (key: string): boolean => key.length <= longestKeyBytes && key.split("/").every(isKeyPart);

/** Refuses a key that one of the stores would read differently: the same keys work in all of them. */
export function assertObjectKey(key: string): void {
  if (isObjectKey(key)) return;
  const shown = JSON.stringify(key.slice(0, 100));
  throw new SandboxError("invalid_argument", `Cannot use ${shown} as the key of an object`, { suggestion });
}

/** A prefix is the beginning of a key, or empty for all. It may end anywhere, also in a slash. */
export function assertObjectPrefix(prefix: string): void {
  const parts = prefix.split("/");
  const last = parts.pop() ?? "";
  const sound = parts.every(isKeyPart) && (last === "" || (part.test(last) && last.length <= longestPartBytes));
  if (prefix.length <= longestKeyBytes && sound) return;
  const shown = JSON.stringify(prefix.slice(0, 100));
  throw new SandboxError("invalid_argument", `Cannot list objects whose key starts with ${shown}`, { suggestion });
}
