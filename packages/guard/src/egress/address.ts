import { isIPv4, isIPv6 } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";

export type Address = ipaddr.IPv4 | ipaddr.IPv6;

/**
 * Parses plain notation only: four decimal parts, or IPv6 without a zone. An IPv4 address that is mapped into IPv6 is
 * returned as the IPv4 address.
 */
export function parseAddress(text: string): Address | undefined {
  if (isIPv4(text)) return ipaddr.IPv4.parse(text);
  if (!isIPv6(text) || text.includes("%")) return undefined;
  const address = ipaddr.IPv6.parse(text);
  return isMapped(address) ? address.toIPv4Address() : address;
}

function isMapped(address: Address): address is ipaddr.IPv6 {
  // This is `::ffff:0:0/96` only: the library also counts the long deprecated `::a.b.c.d`, which the kernel does not.
  return address.kind() === "ipv6" && (address as ipaddr.IPv6).match(ipaddr.IPv6.parse("::ffff:0:0"), 96);
}

const nat64 = ipaddr.IPv6.parse("64:ff9b::");

const descriptions: Readonly<Record<string, string>> = {
  loopback: "on the machine's own loopback",
  private: "in a private range",
  uniqueLocal: "in a private range",
  linkLocal: "link-local, where clouds keep their metadata",
  carrierGradeNat: "in the range of carrier-grade NAT",
  multicast: "a multicast address",
  broadcast: "a broadcast address",
  unspecified: "the unspecified address, which means this machine",
};

/**
 * The addresses where clouds answer a machine about itself, credentials included: some are link-local, others are not.
 */
const metadataAddresses = new Set(
  [
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fd00:ec2::23",
    "fd20:ce::254",
  ].map((text) => ipaddr.parse(text).toString()),
);

/**
 * Returns why an address is not an ordinary address of the internet, as text that follows "it is", or undefined if it
 * is ordinary. All ranges that the registries set apart are special, and so are the machine's own addresses in any
 * range: services that trust the machine trust them.
 */
export function specialAddress(address: Address): string | undefined {
  const translated = translate(address);
  if (translated !== address) return specialAddress(translated);
  if (metadataAddresses.has(address.toString())) return "where a cloud keeps its metadata";
  const range = address.range();
  if (range !== "unicast") return descriptions[range] ?? "in a range that is set apart from the internet";
  return isOwn(address) ? "an address of this machine" : undefined;
}

/**
 * Reports whether only a rule with this single address allows it, and no rule with a range around it. Behind these
 * addresses are credentials of the machine and services that trust it, and an operator who allows a range of a private
 * network does not think of them.
 */
export function needsOwnRule(address: Address): boolean {
  const plain = translate(address);
  return metadataAddresses.has(plain.toString()) || (plain.range() !== "loopback" && isOwn(plain));
}

/** Returns the IPv4 address that a translator between IPv6 and IPv4 makes of this one, or the address itself. */
function translate(address: Address): Address {
  const isTranslated = address.kind() === "ipv6" && (address as ipaddr.IPv6).match(nat64, 96);
  return isTranslated ? new ipaddr.IPv4(address.toByteArray().slice(12)) : address;
}

/** Reports whether the whole range is set apart from the internet, for one reason. */
export function isSetApart(network: Address, bits: number): boolean {
  const cidr = `${network.toString()}/${bits}`;
  const last =
    network.kind() === "ipv4" ? ipaddr.IPv4.broadcastAddressFromCIDR(cidr) : ipaddr.IPv6.broadcastAddressFromCIDR(cidr);
  return network.range() !== "unicast" && network.range() === last.range();
}

function isOwn(address: Address): boolean {
  const text = address.toString();
  const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return own.some((entry) => parseAddress(entry.address)?.toString() === text);
}
