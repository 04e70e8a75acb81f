import { z } from "zod";

/**
 * `example.com`, `*.example.com` (any depth, not the name itself), an address, a CIDR, `*`; each optionally with
 * `:port` or `:from-to`. IPv6 in brackets when a port follows.
 */
const EgressRule = z.string().min(1).max(300);

/** Default deny. A connection is allowed when an `allow` rule matches and no `deny` rule does. */
export const EgressPolicy = z.strictObject({
  allow: z.array(EgressRule).max(1000).default([]),
  deny: z.array(EgressRule).max(1000).default([]),
});
export type EgressPolicy = z.output<typeof EgressPolicy>;
export type EgressPolicyInput = z.input<typeof EgressPolicy>;
