import { z } from "zod";
import { AccessPolicy } from "./access-policy.ts";
import { TemplateName } from "./ids.ts";

/** What a key may do. `admin` includes everything, also keys. */
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
  /** The templates that the key may use; all of them when absent. */
  templates: z.array(TemplateName).max(256).optional(),
  /** Whether the key sees and uses only the sandboxes that it created. */
  ownOnly: z.boolean().default(true),
  /**
   * What the key's sandboxes may be given. When left out, `drivers` are the isolating ones and `egress` is the
   * internet; for a key with the verb `admin`, both are what the server offers.
   */
  policy: AccessPolicy.prefault({}),
  requestsPerMinute: z.int().min(1).max(10_000_000).optional(),
});
export type CreateKey = z.output<typeof CreateKey>;
export type CreateKeyInput = z.input<typeof CreateKey>;

/** The public name of a key. The secret is something else and appears only in the `authorization` header. */
export const KeyId = z
  .string()
  .regex(/^[a-z0-9]{12}$/, "a key id is 12 characters of a-z and 0-9, the part between the underscores of its secret");

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

/** The secret is returned only here; the server stores its hash. */
export const KeyCreated = z.strictObject({ key: KeyInfo, secret: z.string() });
export type KeyCreated = z.infer<typeof KeyCreated>;
