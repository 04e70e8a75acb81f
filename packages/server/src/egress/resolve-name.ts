import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import { parseAddress } from "@atoll/guard";

/**
 * Resolves a name to its addresses, best first; the list is empty when there is no such name. Rejects when no name
 * server answered.
 */
export type ResolveName = (name: string, signal: AbortSignal) => Promise<string[]>;

/** Errors that mean "no such name", or no address of this family. */
const misses = new Set(["ENOTFOUND", "ENODATA", "ENONAME"]);

/**
 * Asks the machine's name servers, after its hosts file. It does not use `getaddrinfo`: that would occupy Node's few
 * threads, which all file operations need, for as long as a sandbox chooses to ask for names that hang; and it would
 * complete short names with the machine's own domain.
 */
export const resolveName: ResolveName = async (name, signal) => {
  const listed = await lookInHostsFile(name);
  if (listed.length > 0) return listed;
  const resolver = new Resolver({ timeout: 2_000, tries: 2 });
  const cancel = (): void => resolver.cancel();
  signal.addEventListener("abort", cancel, { once: true });
  try {
    signal.throwIfAborted();
    const answers = await Promise.allSettled([resolver.resolve6(name), resolver.resolve4(name)]);
    signal.throwIfAborted();
    const found = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    const failure = answers.find((answer) => answer.status === "rejected" && !misses.has(answer.reason.code));
    if (found.length === 0 && failure?.status === "rejected") throw failure.reason;
    return found;
  } finally {
    signal.removeEventListener("abort", cancel);
  }
};

async function lookInHostsFile(name: string): Promise<string[]> {
  const text = await readFile("/etc/hosts", "utf8").catch(() => "");
  return text.split("\n").flatMap((line) => {
    const [address = "", ...names] = line.replace(/#.*/, "").trim().split(/\s+/);
    const isListed = names.some((listed) => listed.toLowerCase().replace(/\.$/, "") === name);
    return isListed && parseAddress(address) !== undefined ? [address] : [];
  });
}
