import { z } from "zod";

/**
 * One of `example.com`, `*.example.com` (at any depth, without the name itself), an address, a CIDR or `*`; each
 * optionally with `:port` or `:from-to`. IPv6 is in brackets when a port follows.
 */
const EgressRule = z.string().min(1).max(300);

/** A connection is allowed when an `allow` rule matches and no `deny` rule does; everything else is denied. */
export const EgressPolicy = z.strictObject({
  allow: z.array(EgressRule).max(1000).default([]),
  deny: z.array(EgressRule).max(1000).default([]),
});
export type EgressPolicy = z.output<typeof EgressPolicy>;
export type EgressPolicyInput = z.input<typeof EgressPolicy>;
