import ipaddr from "ipaddr.js";
import { isMeantAloneOnly, isSetApart, parseAddress, specialAddress, type Address } from "./address.ts";
import { parseHost, type Host } from "./host.ts";

/** What a rule speaks of. `below` is every name under the given one, at any depth, and not that name itself. */
type Target =
  | { kind: "anything" }
  | { kind: "name"; name: string }
  | { kind: "below"; name: string }
  | { kind: "network"; address: Address; bits: number };

/** One line of a policy, understood. */
export interface Rule {
  /** As it was written. */
  text: string;
  target: Target;
  firstPort: number;
  lastPort: number;
}

/** The message completes "Cannot use the rule …: ". */
export class MalformedRule extends Error {
  override readonly name = "MalformedRule";
}

const highestPort = 65_535;

export function parseRule(text: string): Rule {
  const { host, ports } = split(text);
  return { text, target: parseTarget(host), ...parsePorts(ports) };
}

export function matches(rule: Rule, host: Host, port: number): boolean {
  if (port < rule.firstPort || port > rule.lastPort) return false;
  const { target } = rule;
  switch (target.kind) {
    case "anything":
      return true;
    case "name":
      return host.kind === "name" && host.name === target.name;
    case "below":
      return host.kind === "name" && host.name.endsWith(`.${target.name}`);
    case "network":
      return host.kind === "address" && isWithin(host.address, target);
  }
}

/**
 * Whether the rule means this special address. A single address does; a range does when all of it is set apart in the
 * same way, except for addresses that have to be named alone. So `0.0.0.0/0` is the internet, and nothing of the
 * machine's own network.
 */
export function meansSpecial({ target }: Rule, address: Address): boolean {
  if (target.kind !== "network") return false;
  if (target.bits === widthOf(target.address)) return true;
  return isSetApart(target.address, target.bits) && !isMeantAloneOnly(address);
}

/** Whether the outer rule, taken by its words, speaks of everything that the inner one speaks of. */
export function contains(outer: Rule, inner: Rule): boolean {
  if (inner.firstPort < outer.firstPort || inner.lastPort > outer.lastPort) return false;
  const [all, part] = [outer.target, inner.target];
  switch (all.kind) {
    case "anything":
      return true;
    case "name":
      return part.kind === "name" && part.name === all.name;
    case "below":
      if (part.kind === "below" && part.name === all.name) return true;
      return (part.kind === "name" || part.kind === "below") && part.name.endsWith(`.${all.name}`);
    case "network":
      return part.kind === "network" && part.bits >= all.bits && isWithin(part.address, all);
  }
}

/** As `contains`, and where the inner rule means special addresses the outer one has to mean them, too. */
export function grants(outer: Rule, inner: Rule): boolean {
  if (!contains(outer, inner)) return false;
  const { target } = inner;
  if (target.kind !== "network") return true;
  const isSingle = target.bits === widthOf(target.address);
  const isSpecial = isSingle ? specialAddress(target.address) !== undefined : isSetApart(target.address, target.bits);
  return !isSpecial || meansSpecial(outer, target.address);
}

function isWithin(address: Address, { address: network, bits }: Extract<Target, { kind: "network" }>): boolean {
  return address.kind() === network.kind() && address.match(network, bits);
}

/** The host and what follows its colon. Without brackets, more than one colon means an IPv6 address and no port. */
function split(text: string): { host: string; ports: string | undefined } {
  const bracketed = /^\[([^[\]]*)\](?::(.*))?$/.exec(text);
  if (bracketed !== null) {
    const host = bracketed[1] ?? "";
    if (!host.includes(":")) throw new MalformedRule("brackets are for IPv6 addresses");
    return { host, ports: bracketed[2] };
  }
  const colon = text.indexOf(":");
  if (colon < 0 || text.indexOf(":", colon + 1) > 0) return { host: text, ports: undefined };
  return { host: text.slice(0, colon), ports: text.slice(colon + 1) };
}

function parsePorts(text: string | undefined): { firstPort: number; lastPort: number } {
  if (text === undefined) return { firstPort: 1, lastPort: highestPort };
  const [, first, last] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const firstPort = Number(first);
  const lastPort = Number(last ?? first);
  if (firstPort >= 1 && firstPort <= lastPort && lastPort <= highestPort) return { firstPort, lastPort };
  throw new MalformedRule(`${JSON.stringify(text)} is neither a port nor a range of ports from 1 to ${highestPort}`);
}

function parseTarget(text: string): Target {
  if (text === "*") return { kind: "anything" };
  if (text.startsWith("*.")) return { kind: "below", name: parseName(text.slice(2)) };
  if (text.includes("*"))
    throw new MalformedRule("a star stands alone or for all that comes before a name, as in *.example.com");
  const slash = text.indexOf("/");
  if (slash >= 0) return parseNetwork(text.slice(0, slash), text.slice(slash + 1));
  const address = parseAddress(text);
  if (address !== undefined) return { kind: "network", address, bits: widthOf(address) };
  return { kind: "name", name: parseName(text) };
}

function parseName(text: string): string {
  const host = parseHost(text);
  if (host?.kind === "name") return host.name;
  if (host?.kind === "address")
    throw new MalformedRule(`an address is written plainly, here ${host.address.toString()}`);
  throw new MalformedRule("it is neither a name, nor an address, nor a range of addresses such as 10.0.0.0/8");
}

function parseNetwork(text: string, prefix: string): Target {
  const address = parseAddress(text);
  if (address === undefined) throw new MalformedRule(`${JSON.stringify(text)} is not an address`);
  if (text.includes(":") && address.kind() === "ipv4")
    throw new MalformedRule("a range of IPv4 addresses is written in IPv4");
  const bits = Number(prefix);
  if (!/^\d{1,3}$/.test(prefix) || bits > widthOf(address)) {
    throw new MalformedRule(`${JSON.stringify(prefix)} is not a prefix length from 0 to ${widthOf(address)}`);
  }
  const cidr = `${address.toString()}/${bits}`;
  const network =
    address.kind() === "ipv4" ? ipaddr.IPv4.networkAddressFromCIDR(cidr) : ipaddr.IPv6.networkAddressFromCIDR(cidr);
  if (network.toString() !== address.toString()) {
    throw new MalformedRule(`the range begins at ${network.toString()}, so write ${network.toString()}/${bits}`);
  }
  return { kind: "network", address: network, bits };
}

function widthOf(address: Address): number {
  return address.kind() === "ipv4" ? 32 : 128;
}
