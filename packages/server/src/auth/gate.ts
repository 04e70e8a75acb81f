import { httpHeaders, SandboxError, serverProofHeader, type SandboxId } from "@atoll/protocol";
import type { KeyStore } from "./key-store.ts";
import type { Principal } from "./principal.ts";
import { RateLimiter } from "./rate-limiter.ts";

/** What a client shows, by header or in the first message of a WebSocket. */
export interface Credentials {
  key?: string | undefined;
  sandboxToken?: string | undefined;
}

export interface GateOptions {
  keys: KeyStore;
  verifyToken(id: SandboxId, token: string): boolean;
  /** Whether this proves that another server with the same metadata store sends a request. */
  isFromServer?(proof: string, request: { method: string; path: string }): Promise<boolean>;
  /** Told of refusals, but not of each one of a flood. */
  onRefused(refusal: { what: string; because: string }): void;
}

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;

const refusalsPerMinute = 60;

/** Lets requests in: knows who asks, and how often they may. What they may do is the verbs' matter. */
export class Gate {
  #options: GateOptions;
  #limiter = new RateLimiter();
  #refusals = new RateLimiter({ maxBurst: refusalsPerMinute });

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /** `sandboxId`: what a sandbox's token has to belong to. A wrong token is told no more than that. */
  admit(credentials: Credentials, asked: string, sandboxId: SandboxId | undefined): Principal {
    const principal = this.recognise(credentials, asked, sandboxId);
    if (principal.kind === "key") this.#spend(principal.key.id, principal.key.requestsPerMinute, asked);
    return principal;
  }

  /** For what servers ask each other. Of what is asked about, nothing is said or looked at before. */
  async admitServer(headers: RequestHeaders, request: { method: string; path: string }, asked: string): Promise<void> {
    const proof = headerOf(headers, serverProofHeader);
    if (proof !== undefined && (await this.#options.isFromServer?.(proof, request)) === true) return;
    throw this.#refuse(asked, "only a server with the same metadata store may ask for it");
  }

  /**
   * For what belongs to a request that was let in, such as the input of a command that is followed: it is no request of
   * its own.
   */
  recognise(credentials: Credentials, asked: string, sandboxId: SandboxId | undefined): Principal {
    const { key: secret, sandboxToken } = credentials;
    if (secret !== undefined) {
      const key = this.#options.keys.verify(secret);
      if (key === undefined) throw this.#refuse(asked, "this API key is not valid");
      return { kind: "key", key };
    }
    if (sandboxToken !== undefined) {
      if (sandboxId === undefined || !this.#options.verifyToken(sandboxId, sandboxToken)) {
        throw this.#refuse(asked, "this token is not valid here");
      }
      return { kind: "sandbox", sandboxId };
    }
    throw new SandboxError("permission_denied", `Cannot ${asked}: no API key was given`, {
      suggestion: "Send `Authorization: Bearer <key>`. The first start of the server prints a key.",
    });
  }

  /**
   * Aborts when the principal is nobody any more. A sandbox's own token ends with the sandbox, and so does what it is
   * used for.
   */
  untilRevoked(principal: Principal): AbortSignal | undefined {
    return principal.kind === "key" ? this.#options.keys.untilRevoked(principal.key.id) : undefined;
  }

  #spend(keyId: string, perMinute: number | undefined, asked: string): void {
    if (perMinute === undefined) return;
    const retryAfterMs = this.#limiter.take(keyId, perMinute);
    if (retryAfterMs === 0) return;
    throw new SandboxError("limit_reached", `Cannot ${asked}: this key has made ${perMinute} requests in a minute`, {
      suggestion: `Try again in ${Math.ceil(retryAfterMs / 1000)} s.`,
      details: { limit: "requestsPerMinute", allowed: perMinute, retryAfterMs },
    });
  }

  #refuse(asked: string, because: string): SandboxError {
    if (this.#refusals.take("", refusalsPerMinute) === 0) this.#options.onRefused({ what: asked, because });
    return new SandboxError("permission_denied", `Cannot ${asked}: ${because}`);
  }
}

/** `Authorization: Bearer` takes either kind; each also has a header of its own. */
export function credentialsOf(headers: RequestHeaders): Credentials {
  const one = (name: string): string | undefined => headerOf(headers, name);
  const [, bearer] = /^bearer +(\S+)$/i.exec(one(httpHeaders.authorization) ?? "") ?? [];
  const isToken = bearer?.startsWith("sbt_") === true;
  const key = (isToken ? undefined : bearer) ?? one("x-api-key");
  const sandboxToken = (isToken ? bearer : undefined) ?? one(httpHeaders.sandboxToken);
  return { key, sandboxToken };
}

function headerOf(headers: RequestHeaders, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value.length <= 200 ? value : undefined;
}
