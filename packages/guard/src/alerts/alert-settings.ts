import { z } from "zod";

/** The events that can go to a webhook. */
export const alertKinds = ["limit.near", "limit.hit", "limit.enforced", "resource.left", "security.refused"] as const;

/** Where alerts go, and which. */
export const AlertSettings = z.strictObject({
  url: z
    .string()
    .max(2048)
    .refine((text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol), "a URL with http or https"),
  /** The receiver checks signatures with it. */
  secret: z.string().min(16).max(256),
  kinds: z.array(z.enum(alertKinds)).min(1).default(["limit.hit", "limit.enforced", "resource.left"]),
});
export type AlertSettings = z.output<typeof AlertSettings>;
