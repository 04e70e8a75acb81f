import { readFile } from "node:fs/promises";

/** What every processor of this machine can do, in alphabetical order. */
export async function readCpuFeatures(): Promise<string[]> {
  return parseCpuFeatures(await readFile("/proc/cpuinfo", "utf8"));
}

/** Of processors that differ only what all can do counts: a process may run on any of them. */
export function parseCpuFeatures(cpuinfo: string): string[] {
  const processors = [...cpuinfo.matchAll(/^(?:flags|Features)[ \t]*:(.*)$/gm)].map(
    ([, words = ""]) => new Set(words.split(/\s+/).filter((word) => word !== "")),
  );
  const [first = new Set<string>(), ...others] = processors;
  return [...first].filter((feature) => others.every((features) => features.has(feature))).toSorted();
}
