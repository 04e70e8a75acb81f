import { createHash } from "node:crypto";

/** Raised whenever the same source gives other code, so that no cached artifact of another form is used. */
export const compilerId = "atoll-live 3, oxc 0.158.0";

/** What code is recognized by. */
export const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
