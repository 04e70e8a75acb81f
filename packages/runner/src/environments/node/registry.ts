import { lookup } from "node:dns/promises";
import { BlockList, isIP } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { run } from "@atoll/host";
import { z } from "zod";
import { remembered, stampOf } from "../remembered.ts";

/** Where packages come from, as npm on this machine is set up, and the egress rules that lead there. */
export interface Registry {
  url: string;
  rules: readonly string[];
}

const queryTimeoutMs = 30_000;

/** Ranges that are not the internet: a rule has to name such an address, beside the name that leads to it. */
const special = new BlockList();
for (const [network, prefix] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["240.0.0.0", 4],
] as const) {
  special.addSubnet(network, prefix);
}
for (const [network, prefix] of [
  ["::", 127],
  ["fc00::", 7],
  ["fe80::", 10],
  ["2001:db8::", 32],
] as const) {
  special.addSubnet(network, prefix, "ipv6");
}

/** Where npm keeps its settings; those below a project are the repository's own and do not count. */
const settings = [join(homedir(), ".npmrc"), "/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc", "/usr/bin/npm"];

/** The registry that npm of this machine uses. `undefined` where there is no npm. */
export async function findRegistry(cacheDirectory: string, signal: AbortSignal): Promise<Registry | undefined> {
  const question = { registry: settings, stamp: await stampOf(settings) };
  const setting = await remembered({ cacheDirectory, question, schema: z.string() }, () => readSetting(signal));
  if (setting === "") return undefined;
  const url = new URL(setting);
  const port = url.port === "" ? (url.protocol === "http:" ? "80" : "443") : url.port;
  const name = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const addresses = isIP(name) === 0 ? await addressesOf(name) : [name];
  const named = addresses.filter((address) => special.check(address, isIP(address) === 6 ? "ipv6" : "ipv4"));
  const hosts = isIP(name) === 0 ? [name, ...named] : [name];
  return { url: url.href, rules: hosts.map((host) => (isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`)) };
}

async function readSetting(signal: AbortSignal): Promise<string> {
  try {
    const options = { signal, timeoutMs: queryTimeoutMs, cwd: "/", env: { HOME: homedir() } };
    const url = new URL((await run("npm", ["config", "get", "registry"], options)).stdout.trim());
    // A name and a password in it are the machine's own.
    url.username = "";
    url.password = "";
    return url.href;
  } catch {
    signal.throwIfAborted();
    return "";
  }
}

async function addressesOf(name: string): Promise<string[]> {
  try {
    return (await lookup(name, { all: true })).map(({ address }) => address);
  } catch {
    // Without an answer the rule of the name stands alone, and the installation says what it could not reach.
    return [];
  }
}
