const cookieName = "atoll_port";

/**
 * Returns a cookie with the token: the browser sends it to this port's URLs alone, not from pages of other sites, and
 * hides it from scripts.
 */
export function portCookie(token: string, prefix: string, isSecure: boolean): string {
  return `${cookieName}=${token}; Path=${prefix}/; HttpOnly; SameSite=Lax${isSecure ? "; Secure" : ""}`;
}

/** Separates the cookies of this server from those of the program inside. */
export function splitPortCookies(header: string): { tokens: string[]; rest: string } {
  const cookies = header.split(";").map((cookie) => cookie.trim());
  const isOurs = (cookie: string): boolean => cookie.startsWith(`${cookieName}=`);
  return {
    tokens: cookies.filter(isOurs).map((cookie) => cookie.slice(cookieName.length + 1)),
    rest: cookies.filter((cookie) => cookie !== "" && !isOurs(cookie)).join("; "),
  };
}

/**
 * Confines a cookie of a program inside to the URLs of its port: without a domain, which other sandboxes would share,
 * and below the prefix. Returns undefined if it would replace a cookie of this server.
 */
export function confineCookie(cookie: string, prefix: string): string | undefined {
  const [pair = "", ...attributes] = cookie.split(";");
  const name = pair.split("=", 1)[0]?.trim() ?? "";
  if (name === cookieName || name === "") return undefined;
  const kept = attributes.filter((attribute) => !/^\s*(domain|path)\s*(=|$)/i.test(attribute));
  if (prefix === "") {
    const path = attributes.find((attribute) => /^\s*path\s*=/i.test(attribute));
    return [pair, ...kept, ...(path === undefined ? [] : [path])].join(";");
  }
  // Browsers accept cookies with these prefixes only for the whole host.
  if (/^__host-/i.test(name)) return undefined;
  const [, path = "/"] =
    /^\s*path\s*=\s*(\/[^;]*)/i.exec(attributes.find((one) => /^\s*path\s*=/i.test(one)) ?? "") ?? [];
  return [pair, ...kept, ` Path=${prefix}${path.trim()}`].join(";");
}
