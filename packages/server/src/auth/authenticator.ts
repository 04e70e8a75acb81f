import { RateLimiter } from "@atoll/guard";
import { httpHeaders, SandboxError, serverProofHeader, type SandboxId } from "@atoll/protocol";
import type { KeyStore } from "./key-store.ts";
import type { Principal } from "./principal.ts";

/** What a client authenticates with, by header or in the first message of a WebSocket. */
export interface Credentials {
  key?: string | undefined;
  sandboxToken?: string | undefined;
}

export interface AuthenticatorOptions {
  keys: KeyStore;
  verifyToken(id: SandboxId, token: string): boolean;
  /** Reports whether `proof` shows that the request comes from another server with the same metadata store. */
  isFromServer?(proof: string, request: { method: string; path: string }): Promise<boolean>;
  /** Called for refusals, but not for each one of a flood. */
  onRefused(refusal: { what: string; because: string }): void;
}

type RequestHeaders = Readonly<Record<string, string | string[] | undefined>>;

const refusalsPerMinute = 60;

/**
 * Authenticates requests and limits their rate. What an authenticated principal may do is decided elsewhere, by its
 * verbs.
 */
export class Authenticator {
  #options: AuthenticatorOptions;
  #limiter = new RateLimiter();
  #refusals = new RateLimiter({ maxBurst: refusalsPerMinute });

  constructor(options: AuthenticatorOptions) {
    this.#options = options;
  }

  /**
   * Authenticates a request and counts it. `sandboxId` is the sandbox that a token has to belong to. A client with a
   * wrong token learns only that the token is wrong.
   */
  admit(credentials: Credentials, asked: string, sandboxId: SandboxId | undefined): Principal {
    const principal = this.authenticate(credentials, asked, sandboxId);
    if (principal.kind === "key") this.#spend(principal.key.id, principal.key.requestsPerMinute, asked);
    return principal;
  }

  /** Admits a request of another server. Nothing about the sandbox is read or answered before the proof was checked. */
  async admitServer(headers: RequestHeaders, request: { method: string; path: string }, asked: string): Promise<void> {
    const proof = headerOf(headers, serverProofHeader);
    if (proof !== undefined && (await this.#options.isFromServer?.(proof, request)) === true) return;
    throw this.#refuse(asked, "only a server with the same metadata store may ask for it");
  }

  /**
   * Authenticates without counting a request. It is for parts of a request that was admitted before, such as the input
   * of a command that is followed.
   */
  authenticate(credentials: Credentials, asked: string, sandboxId: SandboxId | undefined): Principal {
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
      suggestion: "Send `Authorization: Bearer <key>`. The server prints a key at its first start.",
    });
  }

  /**
   * Returns a signal that aborts when the key is revoked. A sandbox's own token has none: it is valid as long as the
   * sandbox exists, and what it is used for ends with the sandbox.
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

/** Reads the credentials from headers. `Authorization: Bearer` takes either kind; each also has a header of its own. */
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
