import { z } from "zod";
import { AccessPolicy } from "./access-policy.ts";
import { TemplateName } from "./ids.ts";

/** What a key may do. `admin` is everything, keys included. */
export const keyVerbs = [
  "admin",
  "sandboxes",
  "read",
  "commands",
  "files",
  "ports",
  "templates",
  "events",
  "metrics",
] as const;
export const KeyVerb = z.enum(keyVerbs);
export type KeyVerb = z.infer<typeof KeyVerb>;

export const CreateKey = z.strictObject({
  name: z.string().min(1).max(63),
  verbs: z
    .array(KeyVerb)
    .min(1)
    .max(keyVerbs.length)
    .default(["sandboxes", "read", "commands", "files", "ports", "events"]),
  /** Absent: all templates. */
  templates: z.array(TemplateName).max(256).optional(),
  /** Sees and touches only the sandboxes that it created. */
  ownOnly: z.boolean().default(true),
  /**
   * What its sandboxes may be given. Left out, `drivers` are the isolating ones and `egress` is the internet; with the
   * verb `admin`, both are what the server offers.
   */
  policy: AccessPolicy.prefault({}),
  requestsPerMinute: z.int().min(1).max(10_000_000).optional(),
});
export type CreateKey = z.output<typeof CreateKey>;
export type CreateKeyInput = z.input<typeof CreateKey>;

/** Not the secret, which goes nowhere but into the header that shows it. */
export const KeyId = z
  .string()
  .regex(/^[a-z0-9]{12}$/, "a key id is 12 characters of a-z and 0-9: those between the underscores of its secret");

export const KeyInfo = z.strictObject({
  id: z.string(),
  name: z.string(),
  verbs: z.array(KeyVerb),
  templates: z.array(z.string()).optional(),
  ownOnly: z.boolean(),
  policy: AccessPolicy.prefault({}),
  requestsPerMinute: z.int().optional(),
  createdAtMs: z.int(),
  lastUsedAtMs: z.int().optional(),
});
export type KeyInfo = z.infer<typeof KeyInfo>;

/** The secret is told once, here, and stored only as a hash. */
export const KeyCreated = z.strictObject({ key: KeyInfo, secret: z.string() });
export type KeyCreated = z.infer<typeof KeyCreated>;
