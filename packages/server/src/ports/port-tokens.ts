import type { SandboxId } from "@atoll/protocol";
import { isSameMac, mac } from "../signing/mac.ts";

/**
 * Issues the tokens that open one port of one sandbox. Nothing is stored: a token is derived from the server's secret,
 * and becomes useless with the sandbox, whose id is never given again.
 */
export class PortTokens {
  #key: Buffer;

  constructor(key: Buffer) {
    this.#key = key;
  }

  tokenFor(sandboxId: SandboxId, port: number): string {
    return mac(this.#key, [sandboxId, String(port)]);
  }

  isValid(sandboxId: SandboxId, port: number, token: string): boolean {
    return isSameMac(this.tokenFor(sandboxId, port), token);
  }
}
