import type { ObjectVersion } from "../object-store.ts";

const form = /^(?<writer>[0-9a-f]{24})-[0-9a-z]{1,11}$/;

/** A version names its writer, which distinguishes what a dead writer left from what a living one is writing. */
export function nameVersion(writer: string, count: number): ObjectVersion {
  return `${writer}-${count.toString(36)}` as ObjectVersion;
}

/** This also prevents a made-up version from being used as a path. */
export function isVersion(name: string): name is ObjectVersion {
  return form.test(name);
}

export function writerOf(version: ObjectVersion): string {
  return form.exec(version)?.groups?.["writer"] ?? "";
}
