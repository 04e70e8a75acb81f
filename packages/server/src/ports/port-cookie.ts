const cookieName = "atoll_port";

/**
 * The token as a browser keeps it: for this port's URLs alone, out of reach of scripts, and not sent along from other
 * sites' pages.
 */
export function portCookie(token: string, prefix: string, isSecure: boolean): string {
  return `${cookieName}=${token}; Path=${prefix}/; HttpOnly; SameSite=Lax${isSecure ? "; Secure" : ""}`;
}

/** Separates our cookies from those that are the business of the program inside. */
export function takePortCookies(header: string): { tokens: string[]; rest: string } {
  const cookies = header.split(";").map((cookie) => cookie.trim());
  const isOurs = (cookie: string): boolean => cookie.startsWith(`${cookieName}=`);
  return {
    tokens: cookies.filter(isOurs).map((cookie) => cookie.slice(cookieName.length + 1)),
    rest: cookies.filter((cookie) => cookie !== "" && !isOurs(cookie)).join("; "),
  };
}

/**
 * A cookie that a program inside sets, kept to its own URLs: without a domain, which other sandboxes would share, and
 * below the prefix. Undefined when it would take the place of ours.
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
  // With these prefixes a browser takes a cookie only for the whole host.
  if (/^__host-/i.test(name)) return undefined;
  const [, path = "/"] =
    /^\s*path\s*=\s*(\/[^;]*)/i.exec(attributes.find((one) => /^\s*path\s*=/i.test(one)) ?? "") ?? [];
  return [pair, ...kept, ` Path=${prefix}${path.trim()}`].join(";");
}
