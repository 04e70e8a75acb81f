import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { BlockList, isIP } from "node:net";
import { SandboxError } from "@atoll/protocol";
import type { Config } from "../config/config.ts";
import { parsePortAddress } from "../ports/port-address.ts";
import { errorBody } from "./error-reply.ts";

const loopback = new BlockList();
loopback.addSubnet("127.0.0.0", 8);
loopback.addAddress("::1", "ipv6");

/** A name or an address, optionally with a port. */
const hostForm = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{0,5})?$/i;

export interface HostNamesOptions extends Pick<Config, "host" | "publicUrl" | "portDomains" | "hostNames"> {
  /** The address on which the server listens. */
  address: () => string | undefined;
}

/**
 * Refuses requests to names that are not this server's. A page on the internet can make its own name resolve to
 * 127.0.0.1 (DNS rebinding), so that a browser on this machine sends requests to a server that listens for this machine
 * only; the Host header shows the name. An address in the Host header is allowed, because it cannot be rebound.
 */
export class HostNames {
  readonly #options: HostNamesOptions;
  readonly #names: ReadonlySet<string>;

  constructor(options: HostNamesOptions) {
    this.#options = options;
    const { host, publicUrl, hostNames } = options;
    const published = publicUrl === undefined ? [] : [new URL(publicUrl).hostname];
    this.#names = new Set(["localhost", host, ...published, ...hostNames].map(plainName));
  }

  /** Refuses a request to another name and returns true. False means that the request is for this server. */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    if (this.isOurs(request)) return false;
    const shown = JSON.stringify(request.headers.host?.slice(0, 100));
    const error = new SandboxError(
      "permission_denied",
      `Cannot take a request for ${shown}: this server has another name`,
      {
        suggestion: "Use the address that the server listens on, or name this one in the server's setting hostNames.",
        details: { setting: "hostNames" },
      },
    );
    // The rest of the body would be taken for the next request.
    response.writeHead(error.status, { "content-type": "application/json; charset=utf-8", connection: "close" });
    response.end(JSON.stringify(errorBody(error, randomUUID())));
    return true;
  }

  isOurs({ headers: { host } }: Pick<IncomingMessage, "headers">): boolean {
    // Browsers always send the header, so a client without it is not a browser.
    if (host === undefined || host === "" || !this.#isGuarded) return true;
    const [, address, text = ""] = hostForm.exec(host) ?? [];
    const name = plainName(text);
    if (isIP(address ?? name) !== 0 || this.#names.has(name)) return true;
    return parsePortAddress("/", host, this.#options.portDomains) !== undefined;
  }

  /** True if names are checked. A server for other machines cannot know its names unless they are configured. */
  get #isGuarded(): boolean {
    const { address, hostNames } = this.#options;
    const listening = address() ?? "";
    const version = isIP(listening);
    return hostNames.length > 0 || (version !== 0 && loopback.check(listening, version === 4 ? "ipv4" : "ipv6"));
  }
}

function plainName(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}
