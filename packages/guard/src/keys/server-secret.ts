import { randomBytes } from "node:crypto";
import { link, open, readFile, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { SandboxError } from "@atoll/protocol";
import { deriveKey, secretBytes, type KeyPurpose } from "./derive-key.ts";

/**
 * The secret that the server signs with. It is created once, at the first start, and stays with the data directory:
 * what was signed before a restart is valid after it.
 */
export class ServerSecret {
  #secret: Buffer;

  private constructor(secret: Buffer) {
    this.#secret = secret;
  }

  static async load(dataDir: string): Promise<ServerSecret> {
    const path = join(dataDir, "secret");
    await createOnce(path);
    const [secret, { mode }] = await Promise.all([readFile(path), stat(path)]);
    if (secret.byteLength !== secretBytes)
      throw unusable(path, `it has ${secret.byteLength} bytes, not ${secretBytes}`);
    if ((mode & 0o077) !== 0) throw unusable(path, "users other than its owner may read it");
    return new ServerSecret(secret);
  }

  /** Derives a key for one purpose: what is signed for one cannot be used for another. */
  keyFor(purpose: KeyPurpose): Buffer {
    return deriveKey(this.#secret, purpose);
  }
}

/** Creates the file. If many processes start at once, one creates it, and none sees an incomplete one. */
async function createOnce(path: string): Promise<void> {
  if ((await stat(path).catch(() => undefined)) !== undefined) return;
  const temporary = `${path}.${randomBytes(8).toString("hex")}`;
  const file = await open(temporary, "wx", 0o600);
  try {
    await file.writeFile(randomBytes(secretBytes));
    await file.datasync();
    await link(temporary, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
  } finally {
    await file.close();
    await rm(temporary, { force: true });
  }
}

function unusable(path: string, because: string): SandboxError {
  return new SandboxError("invalid_argument", `Cannot use the secret in ${path}: ${because}`, {
    suggestion:
      "Remove it: the next start creates a new one, and all earlier signed URLs and port tokens become invalid.",
  });
}
