import { z } from "zod";

/** Request headers of the HTTP interface that carry meaning of ours. */
export const httpHeaders = {
  /** `Bearer <API key>`. */
  authorization: "authorization",
  /** A sandbox's own token, where no key is given. */
  sandboxToken: "x-atoll-sandbox-token",
  idempotencyKey: "idempotency-key",
  /** Who asks, where a sandbox is held: the `holder` of `holdSandbox`. */
  holder: "x-atoll-holder",
} as const;

/** With which a server proves to another one that both have the same metadata store. */
export const serverProofHeader = "x-atoll-server-proof";

/** An error as it travels, in a body and in a WebSocket message alike. */
export const WireError = z.looseObject({
  code: z.string(),
  message: z.string(),
  suggestion: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
});
export type WireError = z.infer<typeof WireError>;

/** The body of every answer with a status of 400 or more. */
export const ErrorBody = z.strictObject({ error: WireError });
