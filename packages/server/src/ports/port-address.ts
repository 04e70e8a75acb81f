import { SandboxId } from "@atoll/protocol";

/** The port that a request is for, and the rest of the request's target. */
export interface PortAddress {
  sandboxId: SandboxId;
  port: number;
  /** The part that was cut off the path: `/p/<sandbox>/<port>`, or nothing if the host name has it all. */
  prefix: string;
  /** The path with its query; it begins with a slash. */
  path: string;
}

const tokenParameter = "atoll_token";

/**
 * Parses `/p/<sandbox>/<port>/…`, and `<port>-<sandbox>.<domain>` for the given domains. Returns undefined if the
 * request is not for a port. Dots and escapes in the path are left as they are: the program inside interprets them.
 */
export function parsePortAddress(url: string, host: string, domains: readonly string[]): PortAddress | undefined {
  const byHost = parseHostName(host.toLowerCase(), domains);
  if (byHost !== undefined) return url.startsWith("/") ? { ...byHost, prefix: "", path: url } : undefined;
  const [, id, port, rest] = /^\/p\/([^/?]+)\/(\d{1,5})(?=[/?]|$)(.*)$/s.exec(url) ?? [];
  const named = toTarget(id, port);
  if (named === undefined || rest === undefined) return undefined;
  return { ...named, prefix: `/p/${named.sandboxId}/${port}`, path: rest.startsWith("/") ? rest : `/${rest}` };
}

/** Removes the token from a target. */
export function splitToken(path: string): { path: string; token: string | undefined } {
  const start = path.indexOf("?");
  if (start < 0) return { path, token: undefined };
  const parameters = path.slice(start + 1).split("&");
  const kept = parameters.filter((parameter) => parameter.split("=", 1)[0] !== tokenParameter);
  const token = new URLSearchParams(path.slice(start)).get(tokenParameter) ?? undefined;
  return { path: kept.length === 0 ? path.slice(0, start) : `${path.slice(0, start)}?${kept.join("&")}`, token };
}

function parseHostName(host: string, domains: readonly string[]): Pick<PortAddress, "sandboxId" | "port"> | undefined {
  const name = host.replace(/:\d+$/, "").replace(/\.$/, "");
  const domain = domains.find((candidate) => name.endsWith(`.${candidate.toLowerCase()}`));
  if (domain === undefined) return undefined;
  const [, port, id] = /^(\d{1,5})-([a-z0-9]+)$/.exec(name.slice(0, -domain.length - 1)) ?? [];
  return toTarget(id, port);
}

function toTarget(
  id: string | undefined,
  port: string | undefined,
): Pick<PortAddress, "sandboxId" | "port"> | undefined {
  const sandboxId = SandboxId.safeParse(id);
  const number = Number(port);
  const isPort = number >= 1 && number <= 65_535 && String(number) === port;
  return sandboxId.success && isPort ? { sandboxId: sandboxId.data, port: number } : undefined;
}
