import { createHash, randomBytes } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "@atoll/engine";
import { z } from "zod";

const Identity = z.strictObject({
  id: z.string().regex(/^[\w-]{1,100}$/),
  /** A hash: a data directory that was copied to another machine belongs to another server. */
  machine: z.string(),
});

/** Under which name this data directory's server holds leases. It stays over restarts, so that a server finds its own again at once. */
export async function loadServerId(dataDir: string): Promise<string> {
  const path = join(dataDir, "server.json");
  const machine = await thisMachine();
  const known = await readFile(path, "utf8")
    .then((text) => Identity.parse(JSON.parse(text)))
    .catch(() => undefined);
  if (known?.machine === machine) return known.id;
  const id = `srv-${randomBytes(9).toString("base64url")}`;
  await writeDurably(path, JSON.stringify({ id, machine } satisfies z.infer<typeof Identity>));
  return id;
}

async function thisMachine(): Promise<string> {
  const id = await readFile("/etc/machine-id", "utf8").catch(() => "");
  return createHash("sha256").update(`atoll ${id.trim()}`).digest("hex").slice(0, 32);
}
