import { randomUUID } from "node:crypto";
import { mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { SandboxError } from "@atoll/protocol";

export const credentialNames = ["url", "key"] as const;
export type CredentialName = (typeof credentialNames)[number];
export type Credentials = Partial<Record<CredentialName, string>>;

/** Reads what `atoll config set` stored; the result is empty where nothing was. */
export async function readCredentials(path: string): Promise<Credentials> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw new SandboxError("permission_denied", `Cannot read ${path}: ${(error as Error).message}`, { cause: error });
  }
  return parseCredentials(text, path);
}

function parseCredentials(text: string, path: string): Credentials {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw unreadable(path, "it is not JSON", cause);
  }
  if (typeof value !== "object" || value === null) throw unreadable(path, "it is not an object");
  const credentials: Credentials = {};
  for (const name of credentialNames) {
    const entry = (value as Record<string, unknown>)[name];
    if (entry === undefined) continue;
    if (typeof entry !== "string") throw unreadable(path, `${name} is not a string`);
    credentials[name] = entry;
  }
  return credentials;
}

function unreadable(path: string, because: string, cause?: unknown): SandboxError {
  return new SandboxError("invalid_argument", `Cannot read ${path}: ${because}`, {
    suggestion: `Remove the file, then run "atoll config set url" and "atoll config set key".`,
    cause,
  });
}

/** Writes the file so that only its owner can read it, and completely or not at all. */
export async function writeCredentials(path: string, credentials: Credentials): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomUUID()}`;
  try {
    const file = await open(draft, "wx", 0o600);
    try {
      await file.writeFile(`${JSON.stringify(credentials, null, 2)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}
