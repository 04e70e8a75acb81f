import { SandboxError, type SandboxInfo, type SandboxPage, type SandboxState } from "@atoll/protocol";

export interface SandboxQuery {
  state?: SandboxState | undefined;
  /** Conditions of the form `name=value`, joined with commas. */
  label?: string | undefined;
  limit: number;
  cursor?: string | undefined;
}

/**
 * Returns one page of a list, oldest first. A sandbox that is created or killed between two pages makes no other appear
 * twice or not at all.
 */
export function pageOf(sandboxes: SandboxInfo[], query: SandboxQuery): SandboxPage {
  const labels = parseLabels(query.label);
  const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
  const found = sandboxes
    .filter(({ state }) => query.state === undefined || state === query.state)
    .filter((sandbox) => labels.every(([name, value]) => sandbox.labels[name] === value))
    .filter((sandbox) => after === undefined || placeOf(sandbox) > after)
    .toSorted((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
  const page = found.slice(0, query.limit);
  const last = page.at(-1);
  const isLast = last === undefined || page.length === found.length;
  return { sandboxes: page, ...(isLast ? {} : { next: Buffer.from(placeOf(last)).toString("base64url") }) };
}

/** Returns a key that sorts as text: by time, and by id where the time is the same. */
function placeOf({ createdAtMs, id }: SandboxInfo): string {
  return `${String(createdAtMs).padStart(16, "0")}:${id}`;
}

function parseCursor(cursor: string): string {
  const place = Buffer.from(cursor, "base64url").toString();
  if (/^\d{16}:[a-z0-9]{20}$/.test(place)) return place;
  throw new SandboxError("invalid_argument", `Cannot list sandboxes: ${cursor} is not a cursor of an earlier page`);
}

function parseLabels(text: string | undefined): [string, string][] {
  if (text === undefined || text === "") return [];
  return text.split(",").map((pair) => {
    const equals = pair.indexOf("=");
    if (equals > 0) return [pair.slice(0, equals), pair.slice(equals + 1)];
    throw new SandboxError("invalid_argument", `Cannot list sandboxes: ${pair} is not name=value`);
  });
}
