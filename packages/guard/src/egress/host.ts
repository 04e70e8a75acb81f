import { domainToASCII } from "node:url";
import { parseAddress, type Address } from "./address.ts";

/** A host in its normal form for comparisons: an address, or a name in lower-case ASCII without the dot at its end. */
export type Host = { kind: "address"; address: Address } | { kind: "name"; name: string };

const longestName = 253;
const longestLabel = 63;

/**
 * Parses a host as programs inside may write it. Names are converted to ASCII (IDN), and what a resolver would take for
 * a number is an address: `127.1`, `0x7f000001` and `017700000001` are 127.0.0.1. Returns undefined for any text that
 * is more than a host: with a user, a path, a port, a percent sign, a zone or blanks.
 */
export function parseHost(text: string): Host | undefined {
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : text;
  if (bare.includes(":")) return addressHost(parseAddress(bare));
  if (bare !== text || !/^[^\s\p{C}/\\?#@%:<>"^`{|}[\]]+$/u.test(bare)) return undefined;
  const ascii = domainToASCII(bare).replace(/\.$/, "");
  return addressHost(parseAddress(ascii)) ?? (isName(ascii) ? { kind: "name", name: ascii } : undefined);
}

function addressHost(address: Address | undefined): Host | undefined {
  return address === undefined ? undefined : { kind: "address", address };
}

function isName(text: string): boolean {
  const labels = text.split(".");
  const last = labels.at(-1) ?? "";
  const endsInNumber = /^(\d+|0x[\da-f]*)$/.test(last);
  const isWellFormed = labels.every(
    (label) => label.length <= longestLabel && /^[a-z\d_]([a-z\d_-]*[a-z\d_])?$/.test(label),
  );
  return text.length <= longestName && isWellFormed && !endsInNumber;
}
