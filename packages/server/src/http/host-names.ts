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

/** A name or an address, and perhaps a port. */
const hostForm = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]+))(?::\d{0,5})?$/i;

export interface HostNamesOptions extends Pick<Config, "host" | "publicUrl" | "portDomains" | "hostNames"> {
  /** The address on which the server listens. */
  address: () => string | undefined;
}

/**
 * Refuses requests to names that are not this server's. A page on the internet can make its own name lead to 127.0.0.1
 * (DNS rebinding) and so speak, in a browser of this machine, to a server that listens for this machine only; the Host
 * header says under which name. An address in its place is no name that anybody could have rebound.
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

  /** Answers a request to another name. False: it is for this server. */
  handle(request: IncomingMessage, response: ServerResponse): boolean {
    if (this.isOurs(request)) return false;
    const shown = JSON.stringify(request.headers.host?.slice(0, 100));
    const error = new SandboxError("permission_denied", `Cannot take a request for ${shown}: no name of this server`, {
      suggestion: "Use the address that the server listens on, or name this one in the server's setting hostNames.",
      details: { setting: "hostNames" },
    });
    // A body that is still coming would be taken for the next request.
    response.writeHead(error.status, { "content-type": "application/json; charset=utf-8", connection: "close" });
    response.end(JSON.stringify(errorBody(error, randomUUID())));
    return true;
  }

  isOurs({ headers: { host } }: Pick<IncomingMessage, "headers">): boolean {
    // Browsers always say it; what says nothing is no browser.
    if (host === undefined || host === "" || !this.#isGuarded) return true;
    const [, address, text = ""] = hostForm.exec(host) ?? [];
    const name = plainName(text);
    if (isIP(address ?? name) !== 0 || this.#names.has(name)) return true;
    return parsePortAddress("/", host, this.#options.portDomains) !== undefined;
  }

  /** A server for other machines has names that it cannot know, unless it was told. */
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
