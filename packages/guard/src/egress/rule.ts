import ipaddr from "ipaddr.js";
import { needsOwnRule, isSetApart, parseAddress, specialAddress, type Address } from "./address.ts";
import { parseHost, type Host } from "./host.ts";

/** What a rule applies to. `below` is every name under the given one, at any depth, and not that name itself. */
type Target =
  | { kind: "anything" }
  | { kind: "name"; name: string }
  | { kind: "below"; name: string }
  | { kind: "network"; address: Address; bits: number };

/** One parsed line of a policy. */
export interface Rule {
  /** The rule as it was written. */
  text: string;
  target: Target;
  firstPort: number;
  lastPort: number;
}

/** A rule that cannot be parsed. The message completes "Cannot use the rule …: ". */
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
 * Reports whether the rule applies to this special address. A rule with a single address does; one with a range does
 * when all of the range is set apart for the same reason, except for addresses that need a rule of their own. So
 * `0.0.0.0/0` is the internet, and nothing of the machine's own network.
 */
export function allowsSpecial({ target }: Rule, address: Address): boolean {
  if (target.kind !== "network") return false;
  if (target.bits === widthOf(target.address)) return true;
  return isSetApart(target.address, target.bits) && !needsOwnRule(address);
}

/** Reports whether the outer rule, as written, applies to everything that the inner one applies to. */
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

/** Reports the same as `contains`, and requires that the outer rule allows the special addresses of the inner one. */
export function grants(outer: Rule, inner: Rule): boolean {
  if (!contains(outer, inner)) return false;
  const { target } = inner;
  if (target.kind !== "network") return true;
  const isSingle = target.bits === widthOf(target.address);
  const isSpecial = isSingle ? specialAddress(target.address) !== undefined : isSetApart(target.address, target.bits);
  return !isSpecial || allowsSpecial(outer, target.address);
}

function isWithin(address: Address, { address: network, bits }: Extract<Target, { kind: "network" }>): boolean {
  return address.kind() === network.kind() && address.match(network, bits);
}

/**
 * Splits a rule into the host and what follows its colon. Without brackets, more than one colon means an IPv6 address
 * without a port.
 */
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
