import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SandboxId } from "@atoll/protocol";

/** Returns the directory with the stored commands of a sandbox; see `CommandStore`. */
export function commandsDir(ownerDir: string): string {
  return join(ownerDir, "commands");
}

/**
 * Copies the commands of one sandbox for a fork that continues them under the same ids. A log that is being written may
 * end within a record in the copy: the guest still has the output that was not stored, and sends it again.
 */
export async function copyCommands(from: string, to: string, sandboxId: SandboxId): Promise<void> {
  const names = await readdir(from).catch((error: unknown) => {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return [];
    throw error;
  });
  await mkdir(to, { recursive: true, mode: 0o700 });
  for (const name of names) {
    if (name.endsWith(".jsonl")) await copyRecord(join(from, name), join(to, name), sandboxId);
    else await cp(join(from, name), join(to, name), { recursive: true, errorOnExist: true });
  }
}

/** Copies the lines of one record with the id of the new sandbox. Half a line belongs to an end that was not stored. */
async function copyRecord(from: string, to: string, sandboxId: SandboxId): Promise<void> {
  const lines = (await readFile(from, "utf8")).split("\n").flatMap((line): object[] => {
    try {
      const { idempotency: _, ...command } = JSON.parse(line) as Record<string, unknown>;
      return [{ ...command, sandboxId }];
    } catch {
      return [];
    }
  });
  await writeFile(to, lines.map((line) => `${JSON.stringify(line)}\n`).join("\n"), { mode: 0o600, flush: true });
}
