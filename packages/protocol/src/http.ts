import { z } from "zod";

/** The request headers that are Atoll's own, and `authorization`. */
export const httpHeaders = {
  /** The value is `Bearer <API key>`. */
  authorization: "authorization",
  /** A sandbox's own token, for requests without a key. */
  sandboxToken: "x-atoll-sandbox-token",
  idempotencyKey: "idempotency-key",
  /** The name under which the client holds a sandbox: the `holder` of `holdSandbox`. */
  holder: "x-atoll-holder",
} as const;

/** By this header a server proves to another one that both have the same metadata store. */
export const serverProofHeader = "x-atoll-server-proof";

/** An error in the body of an answer or in a WebSocket message. */
export const WireError = z.looseObject({
  code: z.string(),
  message: z.string(),
  suggestion: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
});
export type WireError = z.infer<typeof WireError>;

/** The body of every answer with a status of 400 or more. */
export const ErrorBody = z.strictObject({ error: WireError });
