import type { IncomingMessage } from "node:http";
import { httpHeaders } from "@atoll/protocol";
import type { PortAddress } from "./port-address.ts";
import { confineCookie, splitPortCookies } from "./port-cookie.ts";

/** Header fields as they are on the wire: name, value, name, value. */
export type RawHeaders = string[];

/** Headers that apply to one connection only, and the proxy has two. */
const hopByHop = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

/**
 * Headers that the proxy sets itself, or that are for this server. The program inside does not get them from the
 * client.
 */
const ours = new Set<string>([
  "host",
  "origin",
  "cookie",
  "expect",
  "forwarded",
  "x-port-token",
  httpHeaders.sandboxToken,
  httpHeaders.holder,
]);

/**
 * Headers that apply to a whole origin, which ports that differ only by their path share with the server and with each
 * other.
 */
const originWide = new Set([
  "clear-site-data",
  "nel",
  "report-to",
  "reporting-endpoints",
  "service-worker-allowed",
  "strict-transport-security",
]);

export function requestHeaders(request: IncomingMessage, address: PortAddress, isSecure: boolean): RawHeaders {
  const { rawHeaders, headers, socket } = request;
  const host = headers.host ?? "";
  const local = `localhost:${address.port}`;
  const kept = fields(rawHeaders, connectionNames(headers.connection)).filter(
    ([name, value]) => !isForUs(name.toLowerCase(), value),
  );
  const { rest: cookies } = splitPortCookies(headers.cookie ?? "");
  const pairs: [string, string | undefined][] = [
    // Development servers refuse names that they do not know, as a protection against rebinding; they know this one.
    ["Host", local],
    ...kept,
    ["Origin", headers.origin === undefined ? undefined : localOrigin(headers.origin, host, local)],
    ["Cookie", cookies === "" ? undefined : cookies],
    ["X-Forwarded-For", socket.remoteAddress ?? "unknown"],
    ["X-Forwarded-Host", host],
    ["X-Forwarded-Proto", isSecure ? "https" : "http"],
    ["X-Forwarded-Prefix", address.prefix === "" ? undefined : address.prefix],
    ["Transfer-Encoding", headers["transfer-encoding"] === undefined ? undefined : "chunked"],
  ];
  return pairs.flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
}

export function responseHeaders(answer: IncomingMessage, { port, prefix }: PortAddress): RawHeaders {
  const kept = fields(answer.rawHeaders, connectionNames(answer.headers.connection));
  return kept.flatMap(([name, value]) => {
    const key = name.toLowerCase();
    // The header would send browsers to another server for everything at this address.
    if (key === "alt-svc" || (prefix !== "" && originWide.has(key))) return [];
    if (key === "location") return [name, outerLocation(value, port, prefix)];
    if (key !== "set-cookie") return [name, value];
    const cookie = confineCookie(value, prefix);
    return cookie === undefined ? [] : [name, cookie];
  });
}

function isForUs(name: string, value: string): boolean {
  if (ours.has(name) || name.startsWith("x-forwarded-")) return true;
  // A client that sends its API key everywhere must not reveal it to programs inside.
  return (name === "authorization" || name === "x-api-key") && /\b(atk|sbt)_/.test(value);
}

function fields(raw: readonly string[], dropped: ReadonlySet<string>): [string, string][] {
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) {
    const name = raw[index] ?? "";
    const key = name.toLowerCase();
    if (!hopByHop.has(key) && !dropped.has(key)) pairs.push([name, raw[index + 1] ?? ""]);
  }
  return pairs;
}

/**
 * Returns the fields that the sender declares to be for this connection only. The length of a body is never one of
 * them.
 */
function connectionNames(connection: string | undefined): ReadonlySet<string> {
  const names = (connection ?? "").split(",").map((name) => name.trim().toLowerCase());
  return new Set(names.filter((name) => name !== "content-length"));
}

/** Makes the origin the same inside if it is the same outside: WebSocket servers compare it with the host. */
function localOrigin(origin: string, host: string, local: string): string {
  return origin === `http://${host}` || origin === `https://${host}` ? `http://${local}` : origin;
}

function outerLocation(location: string, port: number, prefix: string): string {
  const [, own] =
    new RegExp(`^https?://(?:localhost|127\\.0\\.0\\.1|\\[::1\\]):${port}(/.*|$)`, "si").exec(location) ?? [];
  const path = own === "" ? "/" : (own ?? location);
  // Two slashes would lead to another host.
  return path.startsWith("/") && !path.startsWith("//") && !path.startsWith("/\\") ? `${prefix}${path}` : path;
}
